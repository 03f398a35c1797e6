"""Make the golden journal of the current schema; run once per schema version, then never again.

    python tests/upgrade/make_golden.py

writes `golden/journal_v<schema>.sql`. A golden file is never changed: it stands for files
that people have on their disks.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from holdfast.journal import Journal, SessionDeleted, SqliteStore
from holdfast.messages import Message, TextPart
from holdfast.sessions import events as facts
from holdfast.testing import FakeClock

FOLDER = Path(__file__).with_name("golden")


async def build(path: Path) -> None:
    """Keep one of everything that the journal's own schema has a place for."""
    clock = FakeClock()
    async with Journal(SqliteStore(path, clock=clock), clock=clock) as journal:
        for name in ("ses_kept", "ses_gone"):
            created = facts.SessionCreated(
                slug=name.replace("_", "-"),
                project_id="prj_1",
                directory="/srv/work",
                title=f"Größe {name}",
                version="0.1.0",
            )
            await journal.append(name, [created], must_be_new=True)
            head = await journal.store.acquire(name, "owner", 60)
            assert head is not None
            for number, text in enumerate(("hello", "é" * 20_000, "secret")):
                clock.advance(1.5)
                message = Message(
                    id=f"msg_{number}",
                    session_id=name,
                    role="user",
                    parts=(TextPart(id=f"prt_{number}", text=text),),
                    time_created=clock.now(),
                )
                await journal.append(name, [facts.MessageCreated(message=message)], epoch=1)
        await journal.redact("ses_kept", [4], reason="asked")
        gone = await journal.head("ses_gone")
        assert gone is not None
        note = SessionDeleted(session_id="ses_gone", last=gone.session_seq, hash=gone.hash)
        await journal.store.delete("ses_gone", journal.draft(note), 1)
        await journal.store.collect()


def main() -> None:
    """Write the dump of a fresh journal; refuse to replace one."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "journal.db"
        asyncio.run(build(path))
        with closing(sqlite3.connect(path)) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            target = FOLDER / f"journal_v{version}.sql"
            if target.exists():
                sys.exit(f"{target} exists; a golden file is never changed")
            lines = [
                f"PRAGMA application_id = {application};",
                f"PRAGMA user_version = {version};",
                *connection.iterdump(),
            ]
        target.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
