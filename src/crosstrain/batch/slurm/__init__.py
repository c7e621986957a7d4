"""Slurm, from 20.02 to 26.05: commands, what they print, job scripts."""
