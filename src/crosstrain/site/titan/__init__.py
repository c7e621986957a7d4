"""The production trainer: torchtitan's Qwen3, the same on one CPU rank in tests and on many GPU ranks.

torch and torchtitan are imported in this package only, and every touch of torchtitan's internals is in it.
"""

from crosstrain.site.titan import shim

# torchtitan must be prepared before any module of this package imports a part of it.
shim.prepare()
