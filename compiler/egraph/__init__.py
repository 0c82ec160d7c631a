"""E-graphs: many equal programs at once, and the best of them."""
