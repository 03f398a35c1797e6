"""Kill, stop and mislead the processes of many runs at random moments, and count the effects.

    python tests/crash/lease_storm.py --kills 1000 --zombies 100 --steps 20

Each run charges a customer twice. Its processes are killed, or stopped until another process has
taken over and then let go, or see the wall clock jump by a day (libfaketime). The shop is the
outside world: it checks the fencing token, or only keeps a list. At the end each charge has
happened once, the journals are sound, and whoever was asked was asked a true question.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import json
import multiprocessing
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import HoldfastError, TellModel
from holdfast.journal import verify
from holdfast.providers.model import ModelRequest
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, tool_call
from holdfast.tools import Intent, Reconciliation, Tool, ToolContext, ToolResult
from holdfast.tools.events import ToolOutcomeUnknown

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from machine import wall_clock_in

AMOUNTS = (5, 7)
LEASE_S = 0.6
PATIENCE_S = 60.0
KINDS = ("idempotent", "reconcile", "unsafe", "unguarded")
"""`unguarded` is unsafe, at a shop that does not look at the fence."""
DAY_S = 86_400


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One run and what befalls it."""

    number: int
    seed: int
    kind: str
    mode: str
    """`kill`, `zombie` or `step`."""
    directory: str
    world: str
    is_second: bool = False

    @property
    def run_id(self) -> str:
        return f"run-{self.number}"

    def place(self, name: str) -> Path:
        """Where the processes of the case tell each other how far they are."""
        return Path(f"{self.world}.{name}")


class Told(msgspec.Struct, kw_only=True):
    """What came of a case."""

    case: Case
    kills: int = 0
    zombies: int = 0
    steps: int = 0
    questions: list[str] = []
    resumed_after_s: list[float] = []
    trouble: str = ""


# --- the outside world ----------------------------------------------------------------


class Shop:
    """Charges, one line each; refuses a fence that is lower than one it has seen of the session."""

    def __init__(self, world: str, *, is_guarded: bool) -> None:
        self._path = Path(world)
        self._is_guarded = is_guarded

    def charge(self, session: str, fence: int, key: str, amount: int, *, once: bool) -> None:
        with self._opened(session, fence) as state:
            if not (once and any(known == key for known, _, _ in state["charges"])):
                state["charges"].append((key, amount, fence))

    def has(self, session: str, fence: int, key: str) -> bool:
        """Look, with the token of who looks: whoever acted under a lower one is too late now."""
        with self._opened(session, fence) as state:
            return any(known == key for known, _, _ in state["charges"])

    def charges(self) -> list[tuple[str, int, int]]:
        if not self._path.exists():
            return []
        return [tuple(charge) for charge in json.loads(self._path.read_text())["charges"]]

    @contextlib.contextmanager
    def _opened(self, session: str, fence: int) -> Iterator[dict[str, Any]]:
        with open(f"{self._path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state: dict[str, Any] = {"charges": [], "fences": {}}
            if self._path.exists():
                state = json.loads(self._path.read_text())
            if self._is_guarded:
                if fence < state["fences"].get(session, 0):
                    raise TellModel("the fence is too old")
                state["fences"][session] = fence
            yield state
            fresh = Path(f"{self._path}.{os.getpid()}")
            fresh.write_text(json.dumps(state))
            os.replace(fresh, self._path)


def charge_tool(shop: Shop, case: Case) -> Tool:
    rng = random.Random(f"{case.seed}/{os.getpid()}")
    is_once = case.kind == "idempotent"
    slowest = 3 * LEASE_S if case.mode == "step" else 0.06
    effect: Any = "unsafe" if case.kind == "unguarded" else case.kind

    def pay(amount: int, context: ToolContext) -> str:
        shop.charge(
            context.session_id, context.fence, context.idempotency_key, amount, once=is_once
        )
        return f"charged {amount}"

    async def charge(amount: int, context: ToolContext) -> str:
        """Charge the customer."""
        case.place("begun").touch()
        await asyncio.sleep(rng.uniform(0, slowest))
        done = pay(amount, context)
        await asyncio.sleep(rng.uniform(0, 0.03))
        return done

    def charge_in_thread(amount: int, context: ToolContext) -> str:
        """Charge the customer."""
        case.place("begun").touch()
        pause(rng.uniform(0, slowest))
        done = pay(amount, context)
        pause(rng.uniform(0, 0.03))
        return done

    async def reconcile(intent: Intent, context: ToolContext) -> Reconciliation:
        if shop.has(context.session_id, context.fence, intent.idempotency_key):
            text = f"charged {intent.arguments['amount']}"
            return Reconciliation(verdict="happened", result=ToolResult(text))
        return Reconciliation(verdict="not_happened")

    function = charge_in_thread if case.number % 2 else charge
    asks = {"reconcile": reconcile} if effect == "reconcile" else {}
    return tool(name="charge", effect=effect, **asks)(function)


def sell(request: ModelRequest) -> Any:
    """Ask for the next charge, one after the other, then say that it is done."""
    done = sum(
        part.state != "pending"
        for message in request.messages
        if message.role == "tool"
        for part in message.tool_calls
    )
    return "sold" if done >= len(AMOUNTS) else tool_call("charge", amount=AMOUNTS[done])


# --- a process of a run ---------------------------------------------------------------


def work(case: Case) -> None:
    """Execute a run to its end, or go on with it; where a person is asked, be that person."""
    if case.is_second:
        appeared(case.place("go"))
    asyncio.run(_work(case))


async def _work(case: Case) -> None:
    shop = Shop(case.world, is_guarded=case.kind != "unguarded")
    agent = Agent("seller", model=FunctionModel(sell), tools=[charge_tool(shop, case)])
    settings = load_settings(overrides={"sessions.lease_ttl_s": LEASE_S}).settings
    async with AsyncClient(case.directory, settings=settings) as client:
        while True:
            result = await agent.run("sell", run_id=case.run_id, client=client)
            if result.status != "parked":
                return
            for question in await client.approvals.questions():
                if question.session_id != result.session_id:
                    continue
                # Another process of the run may have answered in the meantime.
                with contextlib.suppress(HoldfastError):
                    await _answer(client, case, shop, result.session_id, question.call_id)


async def _answer(
    client: AsyncClient, case: Case, shop: Shop, session_id: str, call_id: str
) -> None:
    verdict: Any = "abort"
    if case.kind != "unguarded":
        journal = await client.storage.journal()
        head = await journal.head(session_id)
        events = await journal.read_all(session_id)
        [key] = {
            event.decode().intent.idempotency_key  # type: ignore[attr-defined]
            for event in events
            if event.kind == "tool.started" and event.decode().intent.call_id == call_id  # type: ignore[attr-defined]
        }
        assert head is not None
        # Its own token: from here on a process that was overtaken is refused by the shop.
        verdict = "happened" if shop.has(session_id, head.epoch + 1, key) else "not_happened"
    await client.approvals.decide_outcome(
        session_id, call_id, verdict, by="person", result="charged"
    )


def pause(seconds: float) -> None:
    """Sleep; libfaketime does not know `time.sleep`, which sleeps until a point in time."""
    select.select([], [], [], seconds)


def appeared(file: Path) -> None:
    """Wait until another process has made a file."""
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} does not appear"
        pause(0.005)


def started(case: Case) -> int:
    """Start a process that works on a run."""
    if case.mode == "step":
        # Not by fork: libfaketime has locks of its own.
        words = [sys.executable, __file__, "--work", msgspec.json.encode(case).decode()]
        environment = {**os.environ, **wall_clock_in(case.place("clock"))}
        return subprocess.Popen(words, env=environment).pid
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work(case)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def ended(pid: int, patience_s: float = PATIENCE_S) -> int | None:
    """Wait for the end of a process; `None` if it does not come in time."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return None


# --- what befalls it ------------------------------------------------------------------


def warm_up() -> None:
    """Load what a run needs, once, so that the processes which are forked begin at once."""
    with tempfile.TemporaryDirectory() as directory:
        for number, kind in enumerate(KINDS, 1):
            work(
                Case(
                    number=number,
                    seed=0,
                    kind=kind,
                    mode="kill",
                    directory=f"{directory}/state",
                    world=f"{directory}/shop-{number}",
                )
            )


def suffer(case: Case) -> Told:
    """Let one run go through what its case says, then look what there is."""
    told = Told(case=case)
    rng = random.Random(case.seed)
    living: list[int] = []
    try:
        {"kill": _kill, "zombie": _stop, "step": _step}[case.mode](case, rng, told, living)
        for pid in living:
            status = ended(pid)
            if status != 0:
                told.trouble += f"a process ended with {status}; "
        asyncio.run(_judge(case, told))
    except Exception:
        told.trouble += traceback.format_exc()
    finally:
        for pid in living:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    return told


def _kill(case: Case, rng: random.Random, told: Told, living: list[int]) -> None:
    for _ in range(rng.randint(1, 4)):
        pid = started(case)
        if ended(pid, rng.uniform(0.01, 0.5)) is not None:
            break
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        told.kills += 1
    began = time.monotonic()
    pid = started(case)
    if ended(pid) != 0:
        told.trouble += "the last process failed; "
    told.resumed_after_s.append(time.monotonic() - began)


def _stop(case: Case, rng: random.Random, told: Told, living: list[int]) -> None:
    first = started(case)
    living.append(first)
    time.sleep(rng.uniform(0.02, 0.5))
    os.kill(first, signal.SIGSTOP)
    told.zombies += 1
    living.append(started(case))
    time.sleep(rng.uniform(LEASE_S * 0.5, LEASE_S * 2.5))
    os.kill(first, signal.SIGCONT)


def _step(case: Case, rng: random.Random, told: Told, living: list[int]) -> None:
    """Two processes want the same run while the wall clock jumps; one of them may be killed."""
    case.place("clock").write_text("+0s\n")
    first = started(case)
    living.append(first)
    second = started(msgspec.structs.replace(case, is_second=True))
    living.append(second)
    appeared(case.place("begun"))
    # libfaketime looks at the file with every question for the time.
    case.place("fresh").write_text(f"{rng.choice((-1, 1)) * DAY_S:+d}s\n")
    os.replace(case.place("fresh"), case.place("clock"))
    told.steps += 1
    if rng.random() < 0.5:
        os.kill(first, signal.SIGKILL)
        living.remove(first)
        os.waitpid(first, 0)
        told.kills += 1
    case.place("go").touch()


async def _judge(case: Case, told: Told) -> None:
    shop = Shop(case.world, is_guarded=False)
    charges = [(amount, fence) for key, amount, fence in shop.charges() if case.run_id in key]
    amounts = sorted(amount for amount, _ in charges)
    settings = load_settings().settings
    async with AsyncClient(case.directory, settings=settings) as client:
        run = await client.runs.get(case.run_id)
        journal = await client.storage.journal()
        events = await journal.read_all(run.session_id)
        told.questions = [
            fact.question
            for event in events
            if isinstance(fact := event.decode(), ToolOutcomeUnknown)
        ]
        if run.status != "completed":
            told.trouble += f"the run is {run.status}: {run.error}; "
        if problems := await verify(journal.store):
            told.trouble += f"the journal is damaged: {problems}; "
    if case.kind == "unguarded":
        # What a person gave up may have happened or not, but no charge twice.
        if len(amounts) != len(set(amounts)):
            told.trouble += f"charged {amounts}; "
    elif amounts != sorted(AMOUNTS):
        told.trouble += f"charged {charges}; "
    for question in told.questions:
        if case.mode == "kill" and "may still be alive" in question:
            told.trouble += f"false question: {question}; "
        if case.mode == "zombie" and "may still be alive" not in question:
            told.trouble += f"false question: {question}; "


# --- all of it ------------------------------------------------------------------------


def storm(
    directory: Path, *, kills: int, zombies: int, steps: int, seed: int = 0, jobs: int = 2
) -> list[Told]:
    """Let as many runs suffer as it takes for these numbers; returns what came of each."""
    found: list[Told] = []
    rng = random.Random(seed)
    # Not by fork, which must stay to those who work: a pool has threads.
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=warm_up) as pool:
        number = 0
        for mode, wanted in (("kill", kills), ("zombie", zombies), ("step", steps)):
            count = 0
            while count < wanted:
                batch = []
                for _ in range(min(max((wanted - count) // 2, 1), 60)):
                    number += 1
                    batch.append(
                        Case(
                            number=number,
                            seed=rng.randrange(2**32),
                            kind=KINDS[number % len(KINDS)],
                            mode=mode,
                            directory=str(directory / f"state-{number // 40}"),
                            world=str(directory / f"shop-{number}"),
                        )
                    )
                told = pool.map(suffer, batch, chunksize=1)
                count += sum(getattr(one, f"{mode}s") for one in told)
                found += told
    return found


def report(found: list[Told]) -> dict[str, Any]:
    """Sum up what came of it."""
    waits = sorted(wait for told in found for wait in told.resumed_after_s)
    return {
        "runs": len(found),
        "kills": sum(told.kills for told in found),
        "zombies": sum(told.zombies for told in found),
        "steps": sum(told.steps for told in found),
        "questions": sum(len(told.questions) for told in found),
        "end_of_run_after_kill_median_s": round(waits[len(waits) // 2], 3) if waits else None,
        "end_of_run_after_kill_max_s": round(waits[-1], 3) if waits else None,
        "troubles": [
            f"{t.case.mode} {t.case.kind} {t.case.run_id} seed {t.case.seed}: {t.trouble}"
            for t in found
            if t.trouble
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--zombies", type=int, default=100)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--work", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        work(msgspec.json.decode(chosen.work, type=Case))
        return
    with tempfile.TemporaryDirectory() as directory:
        found = storm(
            Path(directory),
            kills=chosen.kills,
            zombies=chosen.zombies,
            steps=chosen.steps,
            seed=chosen.seed,
            jobs=chosen.jobs,
        )
    summed = report(found)
    sys.stdout.write(json.dumps(summed, indent=2) + "\n")
    sys.exit(1 if summed["troubles"] else 0)


if __name__ == "__main__":
    main()
