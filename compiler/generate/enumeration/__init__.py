"""All terms up to a number of operators, evaluated in bulk, and the equations between them (TASO, section 2.2)."""
