"""Evidence of rules: digests, locks, this user's own evidence, and what a proof rests on."""
