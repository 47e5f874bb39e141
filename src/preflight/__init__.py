"""preflight: will this image's stack run on this driver and this GPU, as this job.

Checks before training starts, without importing torch or initialising CUDA.
"""

__version__ = "0.1.0"
