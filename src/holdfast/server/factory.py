"""`create_app`: the ASGI application, for `holdfast serve` and for people who mount it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Final

from holdfast.agents import Agent
from holdfast.errors import ConfigError, UsageError
from holdfast.runtime import Runtime
from holdfast.server.app import HttpApplication
from holdfast.server.guard import is_loopback
from holdfast.server.http import Middleware
from holdfast.server.identity import Authenticator, LoopbackToken
from holdfast.server.pages import add_pages
from holdfast.server.tenancy import RuntimeProvider, SingleTenant
from holdfast.settings import Settings, load_settings

MIDDLEWARE_GROUP: Final = "holdfast.server_middleware"


def create_app(
    settings: Settings | None = None,
    *,
    agents: Sequence[Agent] = (),
    authenticator: Authenticator | None = None,
    runtimes: RuntimeProvider | None = None,
    middleware: Sequence[Middleware] = (),
    loads_entry_points: bool = False,
) -> HttpApplication:
    """Return the application as ASGI; files are opened when its lifespan begins.

    `agents` are served besides those of the project, with their own tools. Without an
    `authenticator` only who can read the token file of the state directory is known, which is
    enough on loopback and nowhere else. `middleware` takes an ASGI application and returns one,
    the first is the outermost; installed packages offer theirs as entry points of the group
    `holdfast.server_middleware`, which are used with `loads_entry_points`.

    Where it is mounted in another application, that one must pass the lifespan on, or call
    `open` and `close` itself.

    Raises:
        ConfigError: the settings are wrong, or would let others in without keys.
    """
    chosen = settings if settings is not None else load_settings().settings
    if authenticator is None and not is_loopback(chosen.server.host):
        raise ConfigError(
            detail=f"server.host: {chosen.server.host!r} can be reached by other machines, and "
            "neither keys nor JWT are configured; listen on 127.0.0.1, or configure them"
        )
    if runtimes is None:
        runtime = Runtime(chosen)
        for agent in agents:
            runtime.agents.offer(agent)
        runtimes = SingleTenant(runtime)
    elif agents:
        raise UsageError(detail="Give `agents` or `runtimes`; a provider brings its own agents.")
    if loads_entry_points:
        middleware = [*middleware, *load_middleware()]
    known = authenticator or LoopbackToken(chosen.storage_path)
    app = HttpApplication(runtimes, known, settings=chosen, middleware=middleware)
    add_pages(app)
    return app


def load_middleware() -> list[Middleware]:
    """Return the middleware that installed packages offer, by name.

    Raises:
        ConfigError: one cannot be imported, or cannot be called.
    """
    found: list[Middleware] = []
    for point in sorted(entry_points(group=MIDDLEWARE_GROUP), key=lambda one: one.name):
        try:
            loaded = point.load()
        except Exception as error:
            detail = f"the middleware {point.name} cannot be imported: {error}"
            raise ConfigError(detail=detail) from error
        if not callable(loaded):
            raise ConfigError(detail=f"the middleware {point.name} is no function")
        found.append(loaded)
    return found


__all__ = ["MIDDLEWARE_GROUP", "create_app", "load_middleware"]
