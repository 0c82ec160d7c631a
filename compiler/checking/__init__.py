"""What `dslc check` and the editor find in rule files: one checker for both."""
