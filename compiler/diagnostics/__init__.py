"""What diagnostics mean (a page per code) and how they are printed."""
