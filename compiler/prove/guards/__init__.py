"""Guards that make a rule hold."""
