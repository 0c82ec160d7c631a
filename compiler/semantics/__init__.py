"""Libraries, names and types; operators at given shapes."""
