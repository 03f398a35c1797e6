"""Run one parsed command: pipes, connectors and redirections, without any shell."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
from contextlib import suppress
from typing import Any

_DEFAULT_SIGNALS = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM]
_NOT_FOUND, _NOT_EXECUTABLE, _REFUSED = 127, 126, 1
_FILTER_FD = 9


class Streams:
    """What a job reads and writes; without a source it reads nothing."""

    def __init__(self, fds: list[int], *, has_source: bool) -> None:
        """Take the descriptors in the order in which they are handed over."""
        self.out, self.err, *rest = fds
        self.source = rest.pop(0) if has_source else None
        self.files = socket.socket(fileno=rest.pop(0)) if rest else None

    def close(self) -> None:
        """Let go of all of them."""
        for fd in (self.out, self.err, self.source):
            if fd is not None:
                os.close(fd)
        if self.files is not None:
            self.files.close()


class Executor:
    """Executes jobs one after the other on the confined thread.

    A job is JSON: `pipelines`, each with a `connector` and `commands` (argv, environment,
    redirections), and the `directory` to start in. Files are opened by the process that asked for
    the job, through the workspace, and arrive as descriptors.
    """

    def __init__(self, wrapper: list[str], program: bytes) -> None:
        """Prefix every command with the wrapper, which gets the filter as a descriptor."""
        self._wrapper = wrapper
        self._filter = program
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._files: socket.socket | None = None
        self._out = self._err = -1
        self._input = self._null
        self._directory = "/"
        self.is_stopped = False

    def run(self, job: dict[str, Any], streams: Streams) -> int:
        """Run a job to its end and return the exit code; negative for a signal."""
        self._files, self._out, self._err = streams.files, streams.out, streams.err
        self._input = self._null if streams.source is None else streams.source
        self._directory = job["directory"]
        code = 0
        for pipeline in job["pipelines"]:
            if self.is_stopped:
                break
            connector = pipeline["connector"]
            if (connector == "&&" and code) or (connector == "||" and not code):
                continue
            code = self._run_pipeline(pipeline["commands"])
        return code

    def _run_pipeline(self, commands: list[dict[str, Any]]) -> int:
        if len(commands) == 1 and commands[0]["argv"][0] == "cd":
            return self._change_directory(commands[0])
        children: list[tuple[int, int]] = []
        source = self._input
        for at, command in enumerate(commands):
            is_last = at == len(commands) - 1
            reader, writer = (self._null, self._out) if is_last else os.pipe()
            children.append(self._start(command, source, writer))
            if source not in (self._null, self._input):
                os.close(source)
            if not is_last:
                os.close(writer)
            source = reader
        codes = [_wait(pid) if pid else code for pid, code in children]
        return codes[-1]

    def _start(self, command: dict[str, Any], source: int, target: int) -> tuple[int, int]:
        """Start a program; return its number, or 0 and an exit code."""
        argv: list[str] = command["argv"]
        fds = {0: source, 1: target, 2: self._err}
        opened: list[int] = []
        try:
            for one in command["redirections"]:
                fds[one["fd"]] = self._redirect(one, fds, opened)
            return self._spawn(argv, command["environment"], fds), 0
        except _CannotOpenError as error:
            self._complain(f"{argv[0]}: {error}")
            return 0, _REFUSED
        except OSError as error:
            is_missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            self._complain(f"{argv[0]}: {'not found' if is_missing else error.strerror}")
            return 0, _NOT_FOUND if is_missing else _NOT_EXECUTABLE
        finally:
            for fd in opened:
                os.close(fd)

    def _spawn(self, argv: list[str], environment: dict[str, str], fds: dict[int, int]) -> int:
        # Low numbers are targets of dup2, and must not be a source that was overwritten.
        actions: list[tuple[int, ...]] = [
            (os.POSIX_SPAWN_DUP2, source, target) for target, source in sorted(fds.items())
        ]
        os.chdir(self._directory)
        full, reader = argv, -1
        program = argv[0]
        if self._wrapper:
            program = self._wrapper[0]
            _require(argv[0], environment["PATH"])
            reader = _pipe(self._filter)
            actions.append((os.POSIX_SPAWN_DUP2, reader, _FILTER_FD))
            full = [*self._wrapper, "--chdir", self._directory, "--", *argv]
        try:
            return os.posix_spawnp(
                program,
                full,
                environment,
                file_actions=actions,
                setsigdef=_DEFAULT_SIGNALS,
                setsigmask=[],
                setpgroup=0,  # a signal to its own group must not reach the launcher
            )
        finally:
            if reader != -1:
                os.close(reader)

    def _redirect(self, one: dict[str, Any], fds: dict[int, int], opened: list[int]) -> int:
        if one["mode"] == "duplicate":
            return fds[one["source_fd"]]
        if one["path"] == os.devnull:
            return self._null
        _, fd = self._ask({"open": one["path"], "mode": one["mode"], "in": self._directory})
        if fd is None:
            raise _CannotOpenError(f"{one['path']}: no file was handed over")
        opened.append(fd)
        return fd

    def _change_directory(self, command: dict[str, Any]) -> int:
        try:
            (path,) = command["argv"][1:]
            answer, _ = self._ask({"enter": path, "in": self._directory})
        except (ValueError, _CannotOpenError) as error:
            self._complain(f"cd: {error}")
            return _REFUSED
        self._directory = answer["directory"]
        return 0

    def _ask(self, question: dict[str, str]) -> tuple[dict[str, Any], int | None]:
        if self._files is None:
            raise _CannotOpenError("files cannot be opened here")
        self._files.send(json.dumps(question).encode())
        data, fds = receive(self._files, 65536, 1)
        answer = json.loads(data) if data else {"error": "nothing answers"}
        if "error" in answer:
            for fd in fds:
                os.close(fd)
            raise _CannotOpenError(answer["error"])
        return answer, fds[0] if fds else None

    def _complain(self, text: str) -> None:
        with suppress(OSError):
            os.write(self._err, f"{text}\n".encode(errors="replace"))


class _CannotOpenError(Exception):
    """A file was not handed over; `str()` says why."""


def receive(source: socket.socket, most: int, descriptors: int) -> tuple[bytes, list[int]]:
    """Take a message with its descriptors, which no command may inherit.

    `recv_fds` hands them out inheritable, whatever the flags say.
    """
    data, fds, _, _ = socket.recv_fds(source, most, descriptors)
    for fd in fds:
        os.set_inheritable(fd, False)
    return data, fds


def _wait(pid: int) -> int:
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _pipe(data: bytes) -> int:
    """A descriptor from which the data can be read once; it fits the pipe."""
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    return reader


def _require(name: str, path: str) -> None:
    """Tell a missing program from a wrapper that failed."""
    wanted = [name] if "/" in name else [f"{one}/{name}" for one in path.split(":")]
    if not any(os.path.exists(one) for one in wanted):
        raise FileNotFoundError(errno.ENOENT, "not found")


__all__ = ["Executor", "Streams", "receive"]
