"""The optimizer: from a model to a faster one with a report."""
