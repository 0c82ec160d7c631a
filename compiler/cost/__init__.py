"""Costs of operators and models, and timing of models against each other."""
