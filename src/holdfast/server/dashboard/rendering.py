"""Templates: every value that is put into one is escaped, unless we made it HTML ourselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast._version import __version__
from holdfast.errors import MissingExtra
from holdfast.operations import approvals
from holdfast.server.dashboard.asks import Ask, ShownPage
from holdfast.server.dashboard.charts import draw_spark
from holdfast.server.dashboard.navigation import NAVIGATION
from holdfast.server.dashboard.notes import NOTES
from holdfast.server.dashboard.prose import is_diff, render_diff, render_markdown
from holdfast.server.dashboard.words import FILTERS, Markup
from holdfast.server.http import ServerRequest

try:
    import jinja2
except ImportError as _error:
    raise MissingExtra(what="the dashboard", package="jinja2", extra="server") from _error


class Renderer:
    """Makes pages of templates."""

    def __init__(self, version: str, css: str) -> None:
        """Load templates when they are needed; `version` is that of the static files."""
        self._env = jinja2.Environment(
            loader=jinja2.PackageLoader("holdfast.server.dashboard"),
            autoescape=True,
            # Stored data leaves out what has its default.
            undefined=jinja2.ChainableUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._env.filters |= FILTERS
        self._env.filters |= {"markdown": render_markdown, "diff": render_diff, "spark": draw_spark}
        self._env.tests |= {"diff": is_diff}
        self._env.globals |= {"static_version": version, "version": __version__}
        # Our own file: what is saved as a page brings it along.
        self._env.globals["css"] = Markup(css)

    async def render_page(self, ask: Ask, page: ShownPage, *, theme: str) -> bytes:
        """Return a page with its frame, for the caller who is logged in."""
        waiting = 0
        if ask.may("approvals:read"):
            questions = await ask.perform(approvals.questions)
            waiting = len(questions)
        values = {
            "ask": ask,
            "root": ask.root,
            "here": ask.here,
            "theme": theme,
            "waiting": waiting,
            "navigation": NAVIGATION,
            "note": NOTES.get(ask.query.get("note", ""), ""),
            "place": next(iter(ask.request.segments[1:]), ""),
            "live": "",
            **page.values,
        }
        return self._env.get_template(page.template).render(values).encode()

    def render_bare(
        self, template: str, request: ServerRequest, values: Mapping[str, Any], *, theme: str
    ) -> bytes:
        """Return a page that needs no login."""
        root = f"{request.scope.get('root_path', '')}/dashboard"
        given = {"root": root, "theme": theme, **values}
        return self._env.get_template(template).render(given).encode()


__all__ = ["Renderer"]
