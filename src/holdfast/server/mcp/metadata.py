"""Where OAuth clients get a token for `/mcp`: the face of the well-known address."""

from __future__ import annotations

from holdfast.server.mcp.face import make_metadata_face as make_face

__all__ = ["make_face"]
