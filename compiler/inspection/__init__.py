"""Properties of the operators and rules of a library: bounds of reads, small arguments, facts, vacuous rules."""
