"""Templates of kernels and reports. None is rendered in this version."""
