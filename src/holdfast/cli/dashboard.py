"""`holdfast dashboard`: the pages of a server, opened in the browser."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
import webbrowser

import click

from holdfast.cli.frame import CliCommand, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.client import find_token, make_token
from holdfast.errors import ServerFailed, ServerUnreachable, Unauthenticated

_ASK_TIMEOUT_S = 10.0


@click.command("dashboard", cls=CliCommand)
@click.option("--no-browser", "is_quiet", is_flag=True, help="Print the link and open nothing.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 is any.  [default: 8321]")
@pass_invocation
def command(invocation: Invocation, is_quiet: bool, port: int | None) -> None:
    """Open the dashboard, logged in.

    Asks the server of this state directory, or the one that `--server` names, for a link that
    works once and for two minutes. Where no server runs here, one is started, and Ctrl-C stops
    it.

    \b
    holdfast dashboard
    holdfast dashboard --no-browser
    """
    if port is not None:
        invocation.overrides["server.port"] = port
    settings = invocation.settings
    remote = invocation.place
    if remote is not None:
        key = settings.secrets.api_key
        own = find_token(settings.storage_path)
        credential = key.get_secret_value() if key is not None else own
        _show(invocation, remote.rstrip("/"), credential, is_quiet=is_quiet)
        return
    address = f"http://{settings.server.host}:{settings.server.port}"
    credential = make_token(settings.storage_path)
    try:
        _show(invocation, address, credential, is_quiet=is_quiet)
        return
    except ServerUnreachable:
        pass  # no server listens there: serve it here

    from holdfast.server import create_app, serve  # noqa: PLC0415 - optional extra

    async def run() -> None:
        waiting: list[asyncio.Future[None]] = []

        def tell(url: str) -> None:
            loop = asyncio.get_running_loop()
            opened = asyncio.to_thread(_show, invocation, url, credential, is_quiet=is_quiet)
            waiting.append(loop.create_task(opened))
            if invocation.is_text:
                say(f"Serving at {url}. Ctrl-C stops.", err=True)

        await serve(create_app(invocation.loaded, loads_entry_points=True), tell)
        await asyncio.gather(*waiting)

    asyncio.run(run())


def _show(invocation: Invocation, address: str, credential: str, *, is_quiet: bool) -> None:
    link = ask_for_link(address, credential)
    if invocation.is_text:
        say(link if is_quiet else f"Opening {address}/dashboard")
    else:
        emit({"url": link})
    if not is_quiet and not webbrowser.open(link):
        say(f"No browser could be opened; open this yourself: {link}", err=True)


def ask_for_link(address: str, credential: str) -> str:
    """Return a link to a server's dashboard that logs in once.

    Raises:
        Unauthenticated: the server does not know the credential.
        ServerUnreachable: no server answers there.
        ServerFailed: it answered with something else.
    """
    request = urllib.request.Request(
        f"{address}/login/links?to=/dashboard",
        data=b"",
        method="POST",
        headers={"Authorization": f"Bearer {credential}", "Content-Length": "0"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_ASK_TIMEOUT_S) as answer:
            path = json.load(answer)["path"]
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 401:
                raise Unauthenticated from None
        raise ServerFailed(detail=f"{address} answered {error.code}", request_id="") from None
    except (OSError, ValueError, KeyError) as error:
        raise ServerUnreachable(url=address, detail=str(error)) from None
    return f"{address}{path}"
