"""Checks of definitions that need no arguments: names, calls, types as far as they are written down."""
