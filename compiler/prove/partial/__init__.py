"""Positions at which two programs differ, and rules that hold on a part of their output."""
