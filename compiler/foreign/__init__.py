"""Rule files of other projects: TASO, TENSAT, FlexFlow."""
