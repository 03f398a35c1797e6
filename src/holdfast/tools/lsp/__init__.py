"""Speak the Language Server Protocol to programs that understand code."""

from holdfast.tools.lsp.servers import KNOWN_SERVERS, LanguageServer, LanguageServers

__all__ = ["KNOWN_SERVERS", "LanguageServer", "LanguageServers"]
