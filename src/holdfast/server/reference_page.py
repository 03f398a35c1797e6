"""The page that shows the API: plain HTML from the description, without a script or a CDN."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
from typing import Any, Final

from holdfast.canonical import JsonObject
from holdfast.server.openapi import describe

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#1b1f24;background:#fff}code{font-family:ui-monospace,monospace;font-size:.92em}"
    "h2{margin-top:2.5rem;border-bottom:1px solid #d0d7de}summary{cursor:pointer;padding:.3rem 0}"
    "b.m{display:inline-block;min-width:4.5rem}table{border-collapse:collapse}"
    "td,th{border:1px solid #d0d7de;padding:.2rem .6rem;text-align:left;vertical-align:top}"
    "@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}}"
)
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CONTENT_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


@functools.cache
def make_page() -> bytes:
    """Return the page."""
    document = describe()
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            groups.setdefault(one["tags"][0], []).append(_operation(method, path, one))
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Holdfast API</title><style>{_STYLE}</style></head><body><main>",
        f"<h1>Holdfast API {html.escape(document['info']['version'])}</h1>",
        f"<p>{html.escape(document['info']['description'])}</p>",
        '<p><a href="openapi.json">openapi.json</a></p>',
    ]
    for group in sorted(groups):
        parts += [f"<h2>{html.escape(group)}</h2>", *groups[group]]
    parts += ["<h2>Problems</h2>", _problems(document), "<h2>Events</h2>", _events(document)]
    return "".join([*parts, "</main></body></html>"]).encode()


def _operation(method: str, path: str, one: JsonObject) -> str:
    rows = "".join(
        f"<tr><td><code>{html.escape(p['name'])}</code></td><td>{p['in']}</td>"
        f"<td>{'needed' if p.get('required') else ''}</td></tr>"
        for p in one.get("parameters", ())
    )
    table = f"<table><tr><th>parameter</th><th>in</th><th></th></tr>{rows}</table>" if rows else ""
    scope = f"<p>Scope: <code>{html.escape(one['x-scope'])}</code></p>" if "x-scope" in one else ""
    about = "".join(
        f"<p>{html.escape(text)}</p>" for text in one.get("description", "").split("\n\n") if text
    )
    return (
        f"<details><summary><b class=m>{method.upper()}</b> <code>{html.escape(path)}</code> "
        f"{html.escape(one['summary'])}</summary>{about}{scope}{table}</details>"
    )


def _problems(document: JsonObject) -> str:
    known: dict[str, Any] = document["components"]["schemas"]["ProblemDetails"]["x-problems"]
    rows = "".join(
        f"<tr><td><code>{html.escape(code)}</code></td><td>{one['status']}</td>"
        f"<td>{html.escape(one['meaning'])}</td></tr>"
        for code, one in known.items()
    )
    return f"<table><tr><th>code</th><th>status</th><th>meaning</th></tr>{rows}</table>"


def _events(document: JsonObject) -> str:
    return "".join(f"<p><code>{html.escape(kind)}</code></p>" for kind in document["x-events"])


__all__ = ["CONTENT_POLICY", "make_page"]
