"""`holdfast serve`: agents behind an address."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import click

from holdfast.cli.frame import CliCommand, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.client import make_token

_LOOK_S = 0.5
_SUFFIXES = frozenset({".py", ".toml", ".yaml", ".yml", ".md"})
_LEFT_OUT = frozenset({".git", ".venv", "node_modules", "__pycache__"})


@click.command("serve", cls=CliCommand)
@click.argument("target", required=False, default="")
@click.option("--host", metavar="ADDRESS", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 is any.  [default: 8321]")
@click.option("--reload", is_flag=True, help="Start again whenever a file of the project changes.")
@click.option("--token", "shows_token", is_flag=True, help="Print the token that requests need.")
@pass_invocation
def command(
    invocation: Invocation,
    target: str,
    host: str | None,
    port: int | None,
    reload: bool,
    shows_token: bool,
) -> None:
    """Serve agents over HTTP.

    Without TARGET, the agents of the project. With TARGET, such as `app:agents`, also those of
    a Python module: an Agent, or a list of them, with their own tools.

    Only this machine can reach it unless told otherwise, and every request needs the token that
    the local client and the CLI find by themselves. Ctrl-C, or SIGTERM, lets running turns go
    on for `server.grace_s`; what has not ended then goes on with the next start.

    \b
    holdfast serve
    holdfast serve app:agents --port 9000 --reload
    curl -H "Authorization: Bearer $(holdfast serve --token)" http://127.0.0.1:8321/v1/runs
    """
    if host is not None:
        invocation.overrides["server.host"] = host
    if port is not None:
        invocation.overrides["server.port"] = port
    invocation.logs_events = not shows_token
    settings = invocation.settings
    if shows_token:
        say(make_token(settings.storage_path))
        return
    if reload:
        sys.exit(_supervise(settings.workspace))

    def tell(url: str) -> None:
        if invocation.is_text:
            say(f"Serving at {url}, described at {url}/docs. Ctrl-C stops.", err=True)
        else:
            emit({"url": url, "pid": os.getpid()})
            sys.stdout.flush()

    from holdfast.server import create_app, load_agents, serve  # noqa: PLC0415 - optional extra

    agents = load_agents(target, directory=settings.workspace) if target else ()
    app = create_app(invocation.loaded, agents=agents, loads_entry_points=True)
    with asyncio.Runner(loop_factory=_make_loop()) as runner:
        runner.run(serve(app, tell))


def _make_loop() -> Any:  # noqa: ANN401 - uvloop is optional
    try:
        import uvloop  # noqa: PLC0415 - an optional extra
    except ImportError:
        return None
    return uvloop.new_event_loop


def _supervise(directory: Path) -> int:
    """Run the same command in a process of its own, again after each change of a file."""
    words = [word for word in sys.argv[1:] if word != "--reload"]
    stop = threading.Event()
    # Noted, not raised: a server that is just being begun would be left without its supervisor.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while True:
        seen = _read_stamps(directory)
        child = subprocess.Popen([sys.executable, "-m", "holdfast", *words])
        while child.poll() is None and _read_stamps(directory) == seen and not stop.is_set():
            stop.wait(_LOOK_S)
        if child.poll() is not None and not stop.is_set():
            # It has failed: the next change may be the cure.
            say("Waiting for a change.", err=True)
            while _read_stamps(directory) == seen and not stop.is_set():
                stop.wait(_LOOK_S)
        if stop.is_set():
            # Told to stop, it stops the server too, whichever way it was told.
            return _end(child)
        if child.poll() is None:
            say("A file has changed; starting again.", err=True)
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> int:
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
    return child.wait()


def _read_stamps(directory: Path) -> dict[str, float]:
    """Return when each file was last changed that the server may go by."""
    found: dict[str, float] = {}
    for place, folders, files in os.walk(directory):
        folders[:] = [one for one in folders if one not in _LEFT_OUT]
        for name in files:
            if Path(name).suffix in _SUFFIXES:
                path = os.path.join(place, name)
                try:
                    found[path] = os.stat(path).st_mtime
                except OSError:
                    continue
    return found
