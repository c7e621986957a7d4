# make demo    a whole run on this machine: a coordinator and several sites as local processes
# make chaos   five minutes of killing, stopping and cutting off the processes of such a run; then nothing may be missing
# make test    all tests; fails below 95 % coverage, branches counted, of domain, placement and outer step
# make check   formatting, lint, types, layers
# make flower-venvs   environments for the tests with Flower, one for each release that is supported
# make docs    writes docs/reference again from the code
# make clean   removes caches, build output and demo-run; the environment stays (to renew it: rm -r .venv)
#
# Every target first makes .venv if it is missing or older than pyproject.toml and constraints.txt.
# make test WORKERS=6 runs as many tests at a time, on a machine with more than two cores.
# make PYTHON=python3.12 chooses the interpreter; make test TESTS=tests/domain runs a part, without the coverage limit.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
TESTS :=
WORKERS := 3
COVERAGE := --cov=crosstrain.domain --cov=crosstrain.placement --cov=crosstrain.outer --cov-branch --cov-fail-under=95

.PHONY: help .venv flower-venvs demo chaos test check docs clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

.venv: $(STAMP)

# The stamp is written last, so an interrupted installation is taken up again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is older than Python 3.11" >&2; \
	    echo "hint: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[train,dev]'
	@touch $(STAMP)

# flwr's pins are not ours, so each release has an environment of its own, without constraints.txt.
flower-venvs: .venv-flwr-1.33/.installed .venv-flwr-new/.installed

.venv-flwr-1.33/.installed: FLWR := 1.33.0
.venv-flwr-new/.installed: FLWR := 1.42.0
.venv-flwr-%/.installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --disable-pip-version-check -e '.[flwr]' flwr==$(FLWR)
	@touch $@

demo: $(STAMP)
	$(BIN)/crosstrain demo

chaos: $(STAMP)
	$(BIN)/crosstrain chaos

test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder --max-worker-restart 0 $(if $(TESTS),$(TESTS),$(COVERAGE))

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP)
	$(BIN)/python docs/generate.py

clean:
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage build dist demo-run
	find src tests docs benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
