"""Options of a run and of its strategies, for the command line and for Python; nothing of the search is loaded by them."""
