"""A filtered sandbox reaches the listener that was handed out of it, and nothing else."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.errors import SandboxFailed, UsageError
from holdfast.sandbox import SandboxOptions, SandboxRunner, Workspace
from holdfast.sandbox.launcher import loopback
from holdfast.sandbox.profiles import PROXY_PORT

HERE = Path(__file__).parent
READABLE = tuple(sorted({sys.prefix, sys.base_prefix}))
SAY = """
import socket, sys
with socket.create_connection(("127.0.0.1", 3128), 5) as one:
    one.sendall(b"hello")
    print(one.recv(100).decode())
"""
TRY = """
import errno, socket
for family, kind, address in [
    (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", {port})),
    (socket.AF_INET6, socket.SOCK_STREAM, ("::1", {port})),
    (socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80)),
    (socket.AF_INET, socket.SOCK_STREAM, ("1.1.1.1", 443)),
    (socket.AF_INET, socket.SOCK_DGRAM, ("1.1.1.1", 53)),
    (socket.AF_INET, socket.SOCK_RAW, ("127.0.0.1", 0)),
    (socket.AF_INET, socket.SOCK_STREAM, ("{own}", {port})),
]:
    try:
        with socket.socket(family, kind) as one:
            one.settimeout(3)
            one.connect(address)
            one.sendall(b"x")
            print("REACHED", address)
    except OSError as error:
        print(errno.errorcode.get(error.errno, error))
"""


@pytest.fixture(params=["landlock", "bubblewrap"])
def level(request, bubblewrap):
    return request.param


class Echo:
    """Answers on listeners with what it hears."""

    def __init__(self):
        self.heard = []
        self.open = 0

    async def serve(self, listener):
        self.open += 1
        server = await asyncio.start_server(self._answer, sock=listener)
        outer = self

        class Serving:
            async def aclose(self):
                outer.open -= 1
                server.close()

        return Serving()

    async def _answer(self, reader, writer):
        data = await reader.read(100)
        self.heard.append(data)
        writer.write(b"heard " + data)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def running(root, level, echo, **options):
    chosen = SandboxOptions(
        **{"profile": "filtered", "level": level, "egress": echo.serve, "readable": READABLE}
        | options
    )
    runner = SandboxRunner(Workspace(root), chosen)
    try:
        yield runner
    finally:
        await runner.aclose()


@pytest.fixture
def own():
    """An address of this machine that is not loopback, if it has one."""
    return socket.gethostbyname(socket.gethostname())


async def test_program_reaches_the_listener_and_nothing_else(tmp_path, level, own):
    echo = Echo()
    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]
        async with running(tmp_path, level, echo) as runner:
            said = await runner.run_argv([sys.executable, "-c", SAY])
            assert said.stdout == "heard hello\n", said.stderr
            assert said.sandbox.endswith("/filtered")
            tried = await runner.run_argv([sys.executable, "-c", TRY.format(port=port, own=own)])
            assert "REACHED" not in tried.stdout
            assert len(tried.stdout.splitlines()) == 7, tried.stderr
        outside.setblocking(False)
        with pytest.raises(BlockingIOError):
            outside.accept()
    assert echo.heard == [b"hello"]
    assert echo.open == 0


async def test_nothing_on_the_machine_reaches_the_listener(tmp_path, level):
    echo = Echo()
    async with running(tmp_path, level, echo) as one, running(tmp_path, level, echo) as other:
        await one.start()
        await other.start()
        # Two sandboxes have the same port, each its own; the machine has none.
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", PROXY_PORT)
        assert (await other.run_argv([sys.executable, "-c", SAY])).exit_code == 0


async def test_programs_find_the_proxy_by_their_variables(tmp_path, level):
    async with running(tmp_path, level, Echo()) as runner:
        shown = (await runner.run_argv(["env"])).stdout.splitlines()
    for name in ("HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        assert f"{name}=http://127.0.0.1:{PROXY_PORT}" in shown
    assert loopback._PORT == PROXY_PORT


async def test_listener_cannot_be_taken_from_inside(tmp_path, level):
    take = (
        "import socket\n"
        "for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):\n"
        "    one = socket.socket()\n"
        "    one.setsockopt(socket.SOL_SOCKET, option, 1)\n"
        "    try:\n"
        "        one.bind(('127.0.0.1', 3128)); one.listen(); print('TAKEN')\n"
        "    except OSError as error:\n"
        "        print('kept')\n"
    )
    async with running(tmp_path, level, Echo()) as runner:
        taken = await runner.run_argv([sys.executable, "-c", take])
    assert taken.stdout == "kept\nkept\n", taken.stderr


async def test_read_only_filtered_writes_nothing(tmp_path, level):
    async with running(tmp_path, level, Echo(), profile="read-only-filtered") as runner:
        assert (await runner.run_argv(["touch", "made"])).exit_code != 0
        assert (await runner.run_argv([sys.executable, "-c", SAY])).exit_code == 0
    assert not (tmp_path / "made").exists()


async def test_without_a_network_namespace_the_profile_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    echo = Echo()
    async with running(tmp_path, "landlock", echo, with_namespaces=False) as runner:
        with pytest.raises(SandboxFailed) as caught:
            await runner.run_argv(["true"])
    assert "namespace" in str(caught.value)
    assert echo.open == 0


async def test_proxy_that_does_not_start_leaves_no_sandbox(tmp_path, level):
    async def broken(listener):
        raise OSError("no")

    async with running(tmp_path, level, Echo(), egress=broken) as runner:
        with pytest.raises(OSError, match="no"):
            await runner.run_argv(["true"])


def test_filtered_profile_without_a_proxy_is_a_mistake(tmp_path):
    with pytest.raises(UsageError):
        SandboxRunner(Workspace(tmp_path), SandboxOptions(profile="filtered"))


def test_ordinary_user_is_filtered_too(level):
    """Where Holdfast does not run as root, the network namespace is in a user namespace."""
    script = HERE / "filtered_as_user.py"
    # Not in pytest's directories, which are for root only and become so again at any time.
    folder = Path(tempfile.mkdtemp(prefix="holdfast-filtered-"))
    folder.chmod(0o777)
    wrapped = [sys.executable, str(HERE / "as_user.py"), "61400", str(script), level, str(folder)]
    try:
        ended = subprocess.run(wrapped, capture_output=True, text=True, timeout=120, check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert ended.stdout.splitlines()[-1:] == [f"filtered {level}"], ended.stdout + ended.stderr
