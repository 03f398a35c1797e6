"""The dashboard: pages for people, below `/dashboard` of the server.

A face like any other: a page asks operations in the name of the caller who is logged in, and shows what
they answer. Here are the pages (`views/`, `templates/`), and what makes
HTML of data. No page holds a script or a style of its own, and none asks another host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.server.dashboard.application import PREFIX as PREFIX
    from holdfast.server.dashboard.application import Dashboard as Dashboard
    from holdfast.server.dashboard.application import make_face as make_face
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__, {"application": "Dashboard PREFIX make_face"}
    )
