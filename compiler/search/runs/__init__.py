"""Runs: what they are asked, what they know so far, and how their findings are judged: settings, contenders, proofs, timing."""
