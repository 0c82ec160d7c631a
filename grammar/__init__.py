"""Grammar of the rule language."""
