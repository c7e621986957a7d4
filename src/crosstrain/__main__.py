"""`python -m crosstrain` is the `crosstrain` command."""

from crosstrain.cli.main import main

if __name__ == "__main__":
    main()
