"""The Model Context Protocol itself, spoken by the official SDK; needs the extra `mcp`.

Nothing outside imports this before a server is to be reached: the SDK is large. What it
raises ends here; the rest of the room knows the three failures of `failures.py`.
"""
