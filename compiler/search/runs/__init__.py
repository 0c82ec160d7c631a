"""What a run is asked, what it knows so far, and how what it found is judged: settings, contenders, proofs, timing."""
