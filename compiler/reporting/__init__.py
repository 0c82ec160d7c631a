"""Pages and pictures of what dslc found: self-contained HTML, without network."""
