"""The `websearch` and `codesearch` tools, on whatever provider is configured."""

from __future__ import annotations

from typing import Annotated, Protocol
from urllib.parse import urlencode

import msgspec
from pydantic import Field

from holdfast.errors import NetworkFailed, ToolError
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import Tool, tool
from holdfast.tools.result import ToolResult
from holdfast.tools.services import HttpClient, HttpRequest
from holdfast.tools.target import make_text_target

_MAX_SNIPPET = 600


class SearchHit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One result of a search."""

    title: str
    url: str
    snippet: str = ""


class SearchProvider(Protocol):
    """Something that can search; it reaches the network through the client it is given."""

    async def search(self, query: str, *, limit: int, http: HttpClient) -> tuple[SearchHit, ...]:
        """Return the best hits first, at most `limit`.

        Raises:
            NetworkFailed, PermissionDenied, ToolError: there is no answer.
        """
        ...


class NoSearch:
    """Stands for a provider that no caller configured."""

    def __init__(self, tool_name: str) -> None:
        """Remember which tool lacks it."""
        self._tool = tool_name

    async def search(self, query: str, *, limit: int, http: HttpClient) -> tuple[SearchHit, ...]:
        """Say what to configure."""
        raise ToolError(
            tool=self._tool,
            detail="no search provider is configured; set tools.searxng_url to the address of a "
            "SearXNG server, or pass a provider of your own to client.tools.use_search",
        )


class SearxngSearch:
    """Searches with a SearXNG server, which needs no key; its JSON format must be on."""

    def __init__(self, base_url: str, *, categories: str = "general") -> None:
        """Use the server at a URL; `it` is its category for code."""
        self._base_url = base_url.rstrip("/")
        self._categories = categories

    async def search(self, query: str, *, limit: int, http: HttpClient) -> tuple[SearchHit, ...]:
        """Ask the server, as `SearchProvider.search` promises."""
        asked = urlencode({"q": query, "format": "json", "categories": self._categories})
        url = f"{self._base_url}/search?{asked}"
        response = await http.fetch(HttpRequest(url=url))
        if response.status != 200:
            hint = "; is its JSON format on?" if response.status == 403 else ""
            raise NetworkFailed(url=self._base_url, detail=f"status {response.status}{hint}")
        try:
            answer = msgspec.json.decode(response.body, type=_SearxngAnswer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NetworkFailed(url=self._base_url, detail="the answer is no JSON") from error
        # Engines leave out what they do not know, and some results are no pages.
        pages = [one for one in answer.results if one.url]
        return tuple(
            SearchHit(title=one.title or "", url=one.url or "", snippet=one.content or "")
            for one in pages[:limit]
        )


class _SearxngResult(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    content: str | None = None


class _SearxngAnswer(msgspec.Struct):
    results: list[_SearxngResult] = []


def make_searxng_tools(base_url: str) -> tuple[Tool, Tool]:
    """Make both search tools on one SearXNG server."""
    code = SearxngSearch(base_url, categories="it")
    return make_websearch_tool(SearxngSearch(base_url)), make_codesearch_tool(code)


def make_websearch_tool(provider: SearchProvider) -> Tool:
    """Make the `websearch` tool on a provider."""

    @tool(
        effect="read",
        tags=("web", "search"),
        labels=("untrusted",),
        egress=True,
        target=make_text_target("query"),
        timeout_s=60,
    )
    async def websearch(
        query: Annotated[str, Field(min_length=1, max_length=1_000)],
        context: ToolContext,
        limit: Annotated[int, Field(ge=1, le=50, description="Results at most")] = 8,
    ) -> ToolResult:
        """Search the web; returns titles, addresses and snippets."""
        return _render(query, await provider.search(query, limit=limit, http=context.http))

    return websearch


def make_codesearch_tool(provider: SearchProvider) -> Tool:
    """Make the `codesearch` tool on a provider."""

    @tool(
        effect="read",
        tags=("web", "search", "code"),
        labels=("untrusted",),
        egress=True,
        target=make_text_target("query"),
        timeout_s=60,
    )
    async def codesearch(
        query: Annotated[str, Field(min_length=1, max_length=1_000)],
        context: ToolContext,
        limit: Annotated[int, Field(ge=1, le=50, description="Results at most")] = 8,
    ) -> ToolResult:
        """Search public code and its documentation; use grep for this workspace."""
        return _render(query, await provider.search(query, limit=limit, http=context.http))

    return codesearch


def _render(query: str, hits: tuple[SearchHit, ...]) -> ToolResult:
    blocks = [
        f"{number}. {hit.title}\n   {hit.url}\n   {' '.join(hit.snippet.split())[:_MAX_SNIPPET]}"
        for number, hit in enumerate(hits, start=1)
    ]
    return ToolResult(
        "\n".join(block.rstrip() for block in blocks) or f"Nothing was found for {query!r}.",
        title=query,
        metadata={"hits": [msgspec.to_builtins(hit) for hit in hits]},
    )
