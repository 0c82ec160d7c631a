"""What `benchmarks/differential.py` is made of: random models, random walks over rules, and the comparison of what they give."""
