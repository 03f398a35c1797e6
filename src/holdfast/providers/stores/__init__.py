"""Where the histories of rate rules are kept when several processes share them: Redis."""
