"""A run: its rules, its values and its state, and the judging of what it finds: contenders, proofs, timing."""
