"""crosstrain: train one language model with small allocations at several supercomputers."""

__version__ = "0.1.0"
