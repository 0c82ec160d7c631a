"""Measurements on real models; none of it is part of the installed package."""
