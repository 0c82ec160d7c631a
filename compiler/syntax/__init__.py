"""Reading and printing of rule files."""
