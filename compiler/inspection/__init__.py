"""What can be said of the operators and rules of a library: bounds of reads, small arguments, facts, rules that say nothing."""
