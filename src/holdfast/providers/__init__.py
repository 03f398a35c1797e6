"""Talk to one model or embedder: wire codecs, registry, resilience, accounting."""
