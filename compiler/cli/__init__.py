"""The command line: a leaf, whose commands are found by their names."""
