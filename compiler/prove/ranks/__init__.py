"""Which ranks stand for all: what the text of a rule says of an axis. docs/proofs.md, "Ranks"."""
