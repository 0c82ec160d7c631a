"""The Python interface: the work of each command, on models and rules in memory or in files, as values."""
