"""Dispatchers on a database."""
