"""What follows from rules that are kept already is left out (TASO, section 4)."""
