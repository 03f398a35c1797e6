"""Synonyms: another name for the very same thing."""

from __future__ import annotations

from holdfast.agents import AgentResult
from holdfast.client import AsyncClient
from holdfast.sync import Client
from holdfast.tools import BaseTool

AgentOutput = AgentResult
OpenCodeAsyncClient = AsyncClient
OpenCodeSyncClient = Client
Tool = BaseTool

__all__ = ["AgentOutput", "OpenCodeAsyncClient", "OpenCodeSyncClient", "Tool"]
