"""Groups of nodes that run as one kernel: which there are, what they take, and which are worth it."""
