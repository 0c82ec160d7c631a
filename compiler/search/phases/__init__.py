"""The stages of a run, each a function of what the one before gave."""
