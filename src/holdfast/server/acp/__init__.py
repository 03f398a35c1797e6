"""Holdfast as an agent of editors: the Agent Client Protocol on standard input and output.

An editor starts `holdfast acp`. Its modes are our agents, its sessions ours; what needs consent is
asked there. Everything is asked through operations, as the owner of the state directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.server.acp.stdio import serve_acp as serve_acp
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"stdio": "serve_acp"})
