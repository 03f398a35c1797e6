"""The crash kit: kill a process at every moment at which it writes, and see what is left.

A scenario is a function of a module that takes a state directory, does its work there, and
can be run again: after a crash it goes on where it stood. The kit runs it in a child process,
counts its write boundaries (commits of SQLite, renames, removals, fsync, files opened for
writing, and what the scenario marks with `boundary`), and then, in a fresh directory for each
boundary, kills it with SIGKILL right before and right after it, runs it again to its end, and
calls your check. Further kills come at random times, several in a row::

    def work(directory: str) -> None: ...

    def check(directory: Path) -> None:
        assert ...

    def test_nothing_is_lost(crash_matrix):
        crash_matrix(work, check)
"""

from __future__ import annotations

import asyncio
import inspect
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import msgspec

from holdfast.errors import UsageError
from holdfast.testing import _crash_boundaries

T = TypeVar("T")
Scenario: TypeAlias = Callable[[str], Any] | str
Check: TypeAlias = Callable[[Path], Any]

_TIMED_OUT = -14


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """One way to die: at a boundary, or at random times, one life after another."""

    boundary: int = 0
    when: _crash_boundaries.When = "before"
    name: str = ""
    delays_s: tuple[float, ...] = ()

    def __str__(self) -> str:
        """Say it in a sentence."""
        if self.delays_s:
            times = ", ".join(f"{delay * 1000:.0f} ms" for delay in self.delays_s)
            return f"killed after {times}"
        return f"killed {self.when} boundary {self.boundary} ({self.name})"

    @property
    def key(self) -> str:
        """What `only` takes to run just this one."""
        if self.delays_s:
            return "@" + ",".join(f"{delay:.4f}" for delay in self.delays_s)
        return f"{self.boundary}:{self.when}"


class CrashFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A kill after which something was not as it must be; its directory was kept."""

    kill: Kill
    problem: str
    directory: str
    output: str = ""


class CrashReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a matrix did and found."""

    scenario: str
    boundaries: tuple[str, ...]
    kills: int
    failures: tuple[CrashFailure, ...] = ()

    def __str__(self) -> str:
        """Return the report as text, with how to repeat each failure."""
        lines = [
            f"{self.scenario}: {len(self.boundaries)} write boundaries, {self.kills} kills, "
            f"{len(self.failures)} failures"
        ]
        for failure in self.failures:
            lines += [
                "",
                f"  {failure.kill}:",
                *[f"    {line}" for line in failure.problem.splitlines()],
                f"    state: {failure.directory}",
                f"    repeat just this one: pytest --crash-only={failure.kill.key} "
                f"(or crash_matrix(..., only={failure.kill.key!r}))",
            ]
            if failure.output:
                lines.append("    the scenario wrote:")
                lines += [f"      {line}" for line in failure.output.splitlines()[-20:]]
        return "\n".join(lines)


class CrashFailed(AssertionError):
    """At least one kill broke an invariant; the text is the report's."""

    def __init__(self, report: CrashReport) -> None:
        """Keep the report."""
        super().__init__(str(report))
        self.report = report


def cross_boundary(name: str, call: Callable[[], T]) -> T:
    """Call something that has an effect, with a write boundary before and after it.

    For effects that the kit cannot see, such as a request to a server. Outside a matrix it
    only calls.
    """
    result: T = _crash_boundaries.wrap_boundaries(name, call)
    return result


def run_matrix(  # noqa: PLR0913 - one argument per way to bound the kills
    scenario: Scenario,
    check: Check,
    *,
    directory: Path | None = None,
    random_kills: int = 10,
    most: int = 0,
    seed: int = 0,
    only: str = "",
    workers: int = 2,
    timeout_s: float = 60.0,
    is_warm: bool = False,
) -> CrashReport:
    """Kill a scenario at every write boundary and at random times; return what was found.

    `check` takes the state directory after the scenario has come to its end in spite of a
    kill, and raises when something is wrong; with several `workers` it is called from several
    threads. `most` bounds the kills at boundaries, spread over all of them. `only` repeats one
    kill, as a failure names it. Directories of failures are kept
    under `directory`.

    `is_warm` runs the scenario once, on a directory that is thrown away, in the process from
    which children are forked: they find compiled and cached what it uses. Only for a scenario
    that leaves neither threads nor anything in its module.

    Raises:
        UsageError: the scenario cannot be imported, or fails without any kill.
    """
    name = name_scenario(scenario)
    base = Path(tempfile.mkdtemp(prefix="crash-", dir=directory))
    with ExitStack() as stack:
        nurseries = [stack.enter_context(Nursery(name, timeout_s, is_warm)) for _ in range(workers)]
        trial = _Trial(base / "undisturbed", check)
        seconds = trial.measure_undisturbed(nurseries[0])
        kills = list(_plan(trial.boundaries, seconds, random_kills, random.Random(seed)))
        if only:
            kills = [_find(kills, only)]
        elif most:
            kills = _spread(kills, most)
        pool = stack.enter_context(ThreadPoolExecutor(workers))
        free = list(nurseries)

        def run(numbered: tuple[int, Kill]) -> CrashFailure | None:
            nursery = free.pop()
            try:
                number, kill = numbered
                return _Trial(base / f"kill-{number}", check).killed(nursery, kill)
            finally:
                free.append(nursery)

        failures = tuple(found for found in pool.map(run, enumerate(kills, 1)) if found)
    if not failures:
        shutil.rmtree(base, ignore_errors=True)
    made = sum(max(1, len(kill.delays_s)) for kill in kills)
    named = tuple(line[1:] for line in trial.boundaries)
    return CrashReport(scenario=name, boundaries=named, kills=made, failures=failures)


def name_scenario(scenario: Scenario) -> str:
    """Return a scenario as `module:function`, which a child process can import."""
    if isinstance(scenario, str):
        return scenario
    if "<" in scenario.__qualname__ or scenario.__module__ == "__main__":
        raise UsageError(detail="A scenario is a function at the top of a module with a name.")
    return f"{scenario.__module__}:{scenario.__qualname__}"


class Nursery:
    """A process that has imported the scenario and gives birth to children that run it."""

    def __init__(self, scenario: str, timeout_s: float = 60.0, is_warm: bool = False) -> None:
        """Prepare; the process starts on entering."""
        self._scenario = scenario
        self._is_warm = is_warm
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Nursery:
        """Start it, and import the scenario there.

        Raises:
            UsageError: the scenario cannot be imported.
        """
        code = "from holdfast.testing._crash_nursery import main; main()"
        prepare = f"import sys; sys.path[:] = {sys.path!r}; "
        self._process = subprocess.Popen(
            [sys.executable, "-c", prepare + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._say({"scenario": self._scenario, "path": sys.path, "is_warm": self._is_warm})
        if self._hear() is None:
            problem = self._end()
            raise UsageError(detail=f"The scenario {self._scenario} cannot start:\n{problem}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self._end()

    def run(
        self,
        directory: Path,
        *,
        kill_at: int = 0,
        when: _crash_boundaries.When = "before",
        kill_after_s: float | None = None,
    ) -> tuple[int, float]:
        """Run the scenario once; returns its exit status (-9: killed) and its seconds."""
        request = {
            "directory": str(directory),
            "log": str(directory) + ".boundaries",
            "output": str(directory) + ".output",
            "kill_at": kill_at,
            "when": when,
            "kill_after_s": kill_after_s,
            "timeout_s": self._timeout_s,
        }
        self._say(request)
        answer = self._hear()
        if answer is None:
            raise UsageError(detail=f"The process that runs {self._scenario} ended:\n{self._end()}")
        return answer["status"], answer["seconds"]

    def _say(self, request: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            # It has ended; the missing answer says so.
            return

    def _hear(self) -> dict[str, Any] | None:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] | None = json.loads(line) if line else None
        return answer

    def _end(self) -> str:
        if self._process is None:
            return ""
        process, self._process = self._process, None
        _, problem = process.communicate()
        return problem.strip()


class _Trial:
    """One directory in which a scenario lives, perhaps more than once."""

    def __init__(self, directory: Path, check: Check) -> None:
        self._directory = directory
        self._check = check
        self.boundaries: list[str] = []
        """Those of the first undisturbed life; `+` has an after, `-` has none."""
        directory.mkdir()

    def measure_undisturbed(self, nursery: Nursery) -> float:
        """Run the scenario to its end and again; returns the seconds of the first life."""
        for life in ("first", "second"):
            status, seconds = nursery.run(self._directory)
            problem = self._describe_problem(status)
            if problem:
                raise UsageError(
                    detail=f"Without any kill, the {life} run of the scenario is not right:\n"
                    f"{problem}\n{self._describe_output()}"
                )
            if life == "first":
                took = seconds
                log = Path(f"{self._directory}.boundaries")
                self.boundaries = log.read_text().splitlines()
        return took

    def killed(self, nursery: Nursery, kill: Kill) -> CrashFailure | None:
        """Kill the scenario, let it come to its end, and check what is there."""
        if kill.delays_s:
            for delay in kill.delays_s:
                nursery.run(self._directory, kill_after_s=delay)
        else:
            nursery.run(self._directory, kill_at=kill.boundary, when=kill.when)
        status, _ = nursery.run(self._directory)
        problem = self._describe_problem(status)
        if not problem:
            self._remove()
            return None
        return CrashFailure(
            kill=kill,
            problem=problem,
            directory=str(self._directory),
            output=self._describe_output(),
        )

    def _describe_problem(self, status: int) -> str:
        if status == _TIMED_OUT:
            return "the scenario did not come to its end in time"
        if status:
            return f"the scenario ended with exit status {status}"
        try:
            if inspect.iscoroutinefunction(self._check):
                asyncio.run(self._check(self._directory))
            else:
                self._check(self._directory)
        except Exception as error:  # noqa: BLE001 - any failure of the check is a finding
            return f"{type(error).__name__}: {error}"
        return ""

    def _describe_output(self) -> str:
        path = Path(f"{self._directory}.output")
        return path.read_text(errors="replace").strip() if path.exists() else ""

    def _remove(self) -> None:
        shutil.rmtree(self._directory)
        for suffix in (".boundaries", ".output"):
            Path(f"{self._directory}{suffix}").unlink(missing_ok=True)


def _plan(
    boundaries: list[str], seconds: float, random_kills: int, source: random.Random
) -> Iterator[Kill]:
    for number, line in enumerate(boundaries, 1):
        yield Kill(boundary=number, when="before", name=line[1:])
        if line.startswith("+"):
            yield Kill(boundary=number, when="after", name=line[1:])
    for _ in range(random_kills):
        lives = source.randint(1, 3)
        yield Kill(delays_s=tuple(source.uniform(0, seconds) for _ in range(lives)))


def _spread(kills: list[Kill], most: int) -> list[Kill]:
    """Keep so many kills at boundaries, evenly spread, and all at random times."""
    timed = [kill for kill in kills if kill.delays_s]
    placed = [kill for kill in kills if not kill.delays_s]
    if len(placed) > most:
        placed = [placed[place * len(placed) // most] for place in range(most)]
    return placed + timed


def _find(kills: list[Kill], only: str) -> Kill:
    if only.startswith("@"):
        return Kill(delays_s=tuple(float(delay) for delay in only[1:].split(",")))
    for kill in kills:
        if kill.key == only:
            return kill
    raise UsageError(detail=f"There is no kill {only!r}; there are {kills[0].key} and so on.")


__all__ = [
    "Check",
    "CrashFailed",
    "CrashFailure",
    "CrashReport",
    "Kill",
    "Nursery",
    "Scenario",
    "cross_boundary",
    "name_scenario",
    "run_matrix",
]
