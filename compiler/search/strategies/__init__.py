"""How substitutions are searched: backtracking, saturation, trees of programs; and the table of all ways."""
