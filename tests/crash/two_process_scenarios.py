"""What a second process does in the tests of two processes; run with a directory and words."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from holdfast.errors import LeaseLost
from holdfast.journal import Journal, SqliteStore
from holdfast.messages import compose
from holdfast.sessions import SESSION_PROJECTIONS
from holdfast.sessions.manager import SessionManager
from holdfast.testing._store_samples import SAMPLE_TABLES, Note
from holdfast.turns import Turn, TurnCompleted, TurnQueue
from holdfast.turns.leases import LeaseKeeper

SESSION = "ses_shared"


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def write_after_being_stopped(directory: str) -> None:
    """Take the lease, let ourselves be stopped, and try to write after waking up."""
    async with Journal(SqliteStore(Path(directory) / "journal.db")) as journal:
        head = await journal.store.acquire("s1", "zombie", 0.2)
        assert head is not None
        await journal.append("s1", [Note(text="before")], epoch=head.epoch)
        say("ready")
        os.kill(os.getpid(), signal.SIGSTOP)
        refused = 0
        for payloads in ([Note(text="zombie")], [Note(text="zombie"), Note(text="zombie")]):
            try:
                await journal.append("s1", payloads, epoch=head.epoch)
            except LeaseLost:
                refused += 1
        lost = journal.store.renew({"s1": head.epoch}, "zombie", 10)
        say(f"refused {refused}, lost {sorted(lost)}")


async def write_notes(directory: str, name: str, count: str) -> None:
    """Append notes to a session of its own, alone and in batches."""
    async with Journal(
        SqliteStore(Path(directory) / "journal.db", projections=SAMPLE_TABLES)
    ) as journal:
        await journal.append(name, [Note(rank=0)], must_be_new=True)
        for number in range(1, int(count)):
            await journal.append(name, [Note(rank=number)] * (1 + number % 3))
            await asyncio.sleep(0)
    say("done")


async def open_and_append(directory: str, name: str) -> None:
    """Wait for the starting shot, then open a file that many others create as well."""
    sys.stdin.readline()
    path = Path(directory) / "new" / "journal.db"
    async with Journal(SqliteStore(path, projections=SAMPLE_TABLES)) as journal:
        await journal.append(name, [Note(text=name)], must_be_new=True)
    say("done")


async def answer(turn: Turn) -> TurnCompleted:
    """Add what was asked and an answer to it, in three steps with pauses between them."""
    assert turn.request.message is not None
    await turn.add_message(turn.request.message)
    await asyncio.sleep(0)
    text = turn.request.message.text
    await turn.add_message(compose(SESSION, "assistant", f"re: {text}", 0.0))
    return TurnCompleted(result={"answered": text})


async def take_turns(directory: str, name: str, count: str) -> None:
    """Submit turns to the shared session, several at once, and see them executed."""
    store = SqliteStore(Path(directory) / "journal.db", projections=SESSION_PROJECTIONS)
    async with Journal(store) as journal:
        keeper = LeaseKeeper(journal)
        queue = TurnQueue(SessionManager(journal, keeper), keeper)

        async def turn(number: int) -> None:
            message = compose(SESSION, "user", f"{name} {number}", 0.0)
            run = await queue.submit(SESSION, message)
            ended = await queue.run(run.id, answer)
            assert ended.status == "completed", ended

        for start in range(0, int(count), 5):
            await asyncio.gather(*[turn(number) for number in range(start, start + 5)])
        await queue.close()
        keeper.close()
    say("done")


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
