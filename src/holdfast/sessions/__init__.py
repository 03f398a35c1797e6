"""Conversations: sessions, their messages, the turn queue, leases, forks."""
