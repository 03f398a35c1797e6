"""Where the bytes of artifacts are kept: one module per kind of place."""
