"""Findings in rule files, for `dslc check` and the editor alike; tests and proofs of what they state."""
