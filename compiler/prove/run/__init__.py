"""All provers on all rules: one interface, worker processes, and the status that follows."""
