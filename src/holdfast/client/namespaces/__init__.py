"""Namespaces of the client: one class each, whose methods are operations of the table."""
