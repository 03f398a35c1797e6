"""Where keys and tenants are kept."""
