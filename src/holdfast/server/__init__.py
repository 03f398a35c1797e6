"""HTTP: the table of operations behind an address.

`create_app` makes the ASGI application, `holdfast serve` runs it. A face: it translates, and
never reaches around the table. Seams: `Authenticator` says who asks, `RuntimeProvider` on whose
records a caller works, `middleware=` and the entry points `holdfast.server_middleware` stand
around everything but the check of the address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.server.app import HttpApplication as HttpApplication
    from holdfast.server.factory import create_app as create_app
    from holdfast.server.http import AsgiApp as AsgiApp
    from holdfast.server.http import Middleware as Middleware
    from holdfast.server.http import ServerRequest as ServerRequest
    from holdfast.server.http import ServerResponse as ServerResponse
    from holdfast.server.identity import Authenticator as Authenticator
    from holdfast.server.identity import FirstOf as FirstOf
    from holdfast.server.identity import LoopbackToken as LoopbackToken
    from holdfast.server.identity import RequestHead as RequestHead
    from holdfast.server.process import load_agents as load_agents
    from holdfast.server.process import serve as serve
    from holdfast.server.tenancy import RuntimeProvider as RuntimeProvider
    from holdfast.server.tenancy import SingleTenant as SingleTenant
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "app": "HttpApplication",
            "factory": "create_app",
            "http": "AsgiApp ServerRequest ServerResponse Middleware",
            "identity": "Authenticator FirstOf LoopbackToken RequestHead",
            "process": "load_agents serve",
            "tenancy": "RuntimeProvider SingleTenant",
        },
    )
