"""Values: data types, scalar expressions, scopes, graphs, programs over holes, facts."""
