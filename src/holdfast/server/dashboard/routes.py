"""Which page stands at which address."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.server.dashboard.asks import View
from holdfast.server.problems import ProblemRaised


class Routes:
    """Views by method and path; a word in braces takes whatever stands there."""

    def __init__(self) -> None:
        """Know no page yet."""
        self._known: list[tuple[str, tuple[str, ...], View]] = []

    def add(self, method: str, path: str, view: View) -> None:
        """Show a view at a path, such as `runs/{run_id}`."""
        self._known.append((method, tuple(filter(None, path.split("/"))), view))

    def list_paths(self) -> list[tuple[str, str]]:
        """Return the methods and paths of all pages."""
        return [(method, "/".join(pattern)) for method, pattern, _ in self._known]

    def find(self, method: str, words: Sequence[str]) -> tuple[View, dict[str, str]]:
        """Return the view of a path, and its words by name.

        Raises:
            ProblemRaised: nothing is there (404), or not by this method (405).
        """
        wanted = "GET" if method == "HEAD" else method
        allowed: set[str] = set()
        for known, pattern, view in self._known:
            found = _match(pattern, words)
            if found is None:
                continue
            if known == wanted:
                return view, found
            allowed.add(known)
        if allowed:
            names = ", ".join(sorted(allowed))
            raise ProblemRaised(405, "request.method", f"this path takes {names}")
        raise ProblemRaised(404, "request.no_route", "there is no page at this address")


def _match(pattern: Sequence[str], words: Sequence[str]) -> dict[str, str] | None:
    if len(pattern) != len(words):
        return None
    found: dict[str, str] = {}
    for part, word in zip(pattern, words, strict=True):
        if part.startswith("{"):
            found[part[1:-1]] = word
        elif part != word:
            return None
    return found


__all__ = ["Routes"]
