"""From an equation between concrete terms to a rule of the language: free sizes, attributes as variables, names."""
