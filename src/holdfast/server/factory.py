"""`create_app`: the ASGI application, for `holdfast serve` and for people who mount it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from holdfast.agents import Agent
from holdfast.errors import ConfigError, UsageError
from holdfast.identity import ControlPlane
from holdfast.runtime import Runtime
from holdfast.server.api_keys import ApiKeyAuthenticator
from holdfast.server.app import HttpApplication
from holdfast.server.guard import is_loopback
from holdfast.server.http import Middleware
from holdfast.server.identity import Authenticator, FirstOf, LoopbackToken
from holdfast.server.limits import LimitedAuthenticator, RequestLimits
from holdfast.server.pages import add_pages
from holdfast.server.shared_links import LinkBearer
from holdfast.server.tenancy import RuntimeProvider
from holdfast.server.tenant_runtimes import TenantRuntimes
from holdfast.settings import LoadedSettings, Settings, load_settings

MIDDLEWARE_GROUP: Final = "holdfast.server_middleware"


def create_app(
    settings: Settings | LoadedSettings | None = None,
    *,
    agents: Sequence[Agent] = (),
    authenticator: Authenticator | None = None,
    runtimes: RuntimeProvider | None = None,
    middleware: Sequence[Middleware] = (),
    loads_entry_points: bool = False,
) -> HttpApplication:
    """Return the application as ASGI; files are opened when its lifespan begins.

    `agents` are served besides those of the project, with their own tools. Without an
    `authenticator` callers are known by API keys, by JWT where `server.jwt` names an issuer, and
    on loopback by the token file of the state directory. Without `runtimes` each tenant has a
    directory of its own below the state directory. `middleware` takes an ASGI application and
    returns one, the first is the outermost; installed packages offer theirs as entry points of
    the group `holdfast.server_middleware`, which are used with `loads_entry_points`.

    `LoadedSettings` also say where each value came from, which the dashboard then shows.

    Where it is mounted in another application, that one must pass the lifespan on, or call
    `open` and `close` itself.

    Raises:
        ConfigError: the settings are wrong, or would let others in without keys.
    """
    given = settings if settings is not None else load_settings()
    chosen = given.settings if isinstance(given, LoadedSettings) else given
    check_places(chosen)
    if runtimes is not None and agents:
        raise UsageError(detail="Give `agents` or `runtimes`; a provider brings its own agents.")
    if runtimes is None:
        runtime = Runtime(chosen)
        for agent in agents:
            runtime.agents.offer(agent)
        runtimes = TenantRuntimes(runtime, most=chosen.server.max_tenants)
        control = runtime.control
    else:
        control = ControlPlane(chosen.storage_path, operator=chosen.tenant)
    if authenticator is None:
        authenticator = make_authenticator(chosen, control)
    if loads_entry_points:
        middleware = [*middleware, *load_middleware()]
    app = HttpApplication(runtimes, authenticator, settings=chosen, middleware=middleware)
    if isinstance(given, LoadedSettings):
        app.setting_sources = given.sources
    add_pages(app)
    return app


def check_places(settings: Settings) -> None:
    """Return if agents work outside of the state directory.

    Raises:
        ConfigError: they would read keys and records of all callers as files of the workspace.
    """
    state, work = (
        Path(os.path.realpath(one)) for one in (settings.storage_path, settings.workspace)
    )
    if work == state or state in work.parents:
        raise ConfigError(
            detail=f"workspace: {str(work)!r} lies in the state directory {str(state)!r}, where "
            "agents of every caller could read keys and records; choose another one for a server"
        )


def make_authenticator(settings: Settings, control: ControlPlane) -> Authenticator:
    """Return what knows callers by keys, by JWT if that is configured, on loopback by the token.

    Raises:
        ConfigError: other machines can reach the server, and nobody could be let in.
    """
    options = settings.server
    limits = RequestLimits(settings)
    known: list[Authenticator] = [ApiKeyAuthenticator(control.keys, limits)]
    if options.jwt.jwks_file is not None or options.jwt.jwks_url is not None:
        from holdfast.server.jwt_tokens import JwtAuthenticator  # noqa: PLC0415 - optional

        known.append(JwtAuthenticator(settings, operator=control.operator))
    if is_loopback(options.host):
        known.insert(0, LoopbackToken(settings.storage_path))
    elif len(known) == 1 and not control.store.has_keys():
        raise ConfigError(
            detail=f"server.host: {options.host!r} can be reached by other machines, and neither "
            "keys nor JWT are configured; make a key (`holdfast keys create`), configure "
            "`server.jwt`, or listen on 127.0.0.1"
        )
    if settings.secrets.link_key is not None:
        known.append(LinkBearer(settings.secrets.link_key.get_secret_value()))
    return LimitedAuthenticator(FirstOf(known), limits, control.tenants)


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


__all__ = ["MIDDLEWARE_GROUP", "create_app", "load_middleware", "make_authenticator"]
