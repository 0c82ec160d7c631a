"""The documentation's site: pages that are written, and pages that are made from the libraries, the options and the docstrings."""
