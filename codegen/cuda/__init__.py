"""The CUDA target: groups of nodes as kernels for NVIDIA devices."""
