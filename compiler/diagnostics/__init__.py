"""Pages of diagnostics, one per code, and the forms in which they are printed."""
