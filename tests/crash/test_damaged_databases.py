"""A damaged database takes no new turn, whatever has damaged it and however its writer ended."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from damaged_databases import DAMAGES, Damage, is_sound

from holdfast import Client
from holdfast.errors import HoldfastError

_FILL = """
import os, signal, sys
from pathlib import Path
from holdfast import Client
client = Client(base_dir=Path(sys.argv[1]))
session = client.sessions.create("kept")
for number in range(6):
    client.runs.execute("build", session.id, f"What is {number} times 23?")
for number in range(20):
    client.sessions.create(f"session {number}")
print(session.id, flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
client.close()
"""
_SEEDS = 6


@pytest.fixture(scope="module", params=["closed", "killed"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp(request.param)
    ended = subprocess.run(
        [sys.executable, "-c", _FILL, str(place), request.param], capture_output=True, check=False
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    (place / "session").write_bytes(ended.stdout.strip())
    return place


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_no_database_that_fails_its_check_takes_a_turn(
    filled: Path, tmp_path: Path, damage: Damage
) -> None:
    session_id = (filled / "session").read_text()
    unsound = 0
    for seed in range(_SEEDS):
        place = tmp_path / str(seed)
        shutil.copytree(filled, place)
        database = place / "journal.db"
        damage(database, random.Random(f"{damage.__name__} {seed}"))
        if is_sound(database):
            continue
        unsound += 1
        with pytest.raises(HoldfastError) as caught, Client(base_dir=place) as client:
            client.runs.execute("build", session_id, "What is 15 times 23?")
        assert caught.value.code.startswith("storage."), caught.value
        with Client(base_dir=place) as client:
            assert client.audit.verify() != []
    # Noise in a payload, or in a page that stands in the log as well, cannot be told from sound:
    # it is the business of the hash chain. Everything else must have hit at least once.
    is_tame = damage.__name__ in ("append_garbage", "damage_log", "flip_bits")
    assert unsound or is_tame or "killed" in filled.name


def test_a_file_that_something_changed_while_it_was_closed_is_examined(
    filled: Path, tmp_path: Path
) -> None:
    place = tmp_path / "copy"
    shutil.copytree(filled, place)
    with Client(base_dir=place) as client:
        client.sessions.list()
    database = place / "journal.db"
    before = database.stat()
    data = bytearray(database.read_bytes())
    page = 1024
    data[page * 5 : page * 6] = bytes(page)
    database.write_bytes(data)
    # The time of the last change can be put back; that of the last change of the inode cannot.
    os.utime(database, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not is_sound(database)
    with pytest.raises(HoldfastError) as caught, Client(base_dir=place) as client:
        client.sessions.create("new")
    assert caught.value.code == "storage.damaged"


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_what_can_be_mended_is_mended_and_the_rest_is_named(
    filled: Path, tmp_path: Path, damage: Damage
) -> None:
    for seed in range(2):
        place = tmp_path / str(seed)
        shutil.copytree(filled, place)
        database = place / "journal.db"
        damage(database, random.Random(f"{damage.__name__} {seed}"))
        if is_sound(database):
            continue
        before = database.read_bytes()
        try:
            with Client(base_dir=place) as client:
                report = client.storage.mend()
        except HoldfastError as error:
            assert error.code == "storage.damaged"
            # Nothing could be read; it is as it was.
            assert database.read_bytes() == before
            continue
        assert Path(report.aside).read_bytes() == before
        with Client(base_dir=place) as client:
            assert client.audit.verify() == []
            assert client.storage.stats()["events"] == report.events
            for session in client.sessions.list(limit=3).items:
                client.runs.execute("build", session.id, "What is 15 times 23?")
            assert client.audit.verify() == []
