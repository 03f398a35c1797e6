"""Ids sort, never meet, and are safe as file names."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ids
from holdfast.errors import InvalidId
from holdfast.ids import check_id, is_id, make_id, make_random_token


def test_ids_of_one_process_sort_in_the_order_they_were_made() -> None:
    made = [make_id("ses") for _ in range(5000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_still_grow_when_the_wall_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_id("run")
    monkeypatch.setattr(ids.time, "time_ns", lambda: 1_000_000)
    second = make_id("run")
    assert first < second


def test_ids_still_grow_when_a_millisecond_has_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids.time, "time_ns", lambda: 1_000_000)
    first = make_id("run")
    monkeypatch.setattr(ids, "_count", ids._LAST_COUNT - 2)
    made = [make_id("run") for _ in range(4)]
    assert made == sorted({first, *made})[-4:]


def test_the_first_ten_characters_are_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    later = (1 << 47) + 0x123456789
    monkeypatch.setattr(ids, "_now", 0)
    monkeypatch.setattr(ids.time, "time_ns", lambda: later * 1_000_000)
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    text = make_id("run").removeprefix("run_")[:10]
    assert sum(alphabet.index(one) << 5 * (9 - at) for at, one in enumerate(text)) == later


def test_ids_made_by_many_threads_are_unique_and_sorted_within_each() -> None:
    made: list[list[str]] = [[] for _ in range(8)]
    start = threading.Barrier(len(made))

    def work(mine: list[str]) -> None:
        start.wait(timeout=10)
        mine.extend(make_id("evt") for _ in range(500))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    everything = [one for mine in made for one in mine]
    assert len(set(everything)) == 8 * 500
    assert all(mine == sorted(mine) for mine in made)


def test_two_processes_make_different_ids() -> None:
    code = "from holdfast.ids import make_id; print(make_id('ses'))"
    command = [sys.executable, "-c", code]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert first != second


def test_an_id_has_its_prefix_and_26_characters() -> None:
    prefix, _, rest = make_id("ses").partition("_")
    assert (prefix, len(rest)) == ("ses", 26)
    assert not set(rest) & set("ilou"), "Crockford's alphabet has none of these"


@given(st.from_regex(r"[a-z]{1,8}", fullmatch=True))
def test_every_new_id_is_valid(prefix: str) -> None:
    made = make_id(prefix)
    assert check_id(made, "session") == made
    assert is_id(made)


HOSTILE = [
    "",
    ".",
    "..",
    "../etc/passwd",
    "a/b",
    "a\\b",
    "/abs",
    "~root",
    "a\0b",
    "a\nb",
    "abc\n",
    "a b",
    "a\x1b[31m",
    "-rf",
    "_hidden",
    "ses_\u202e",
    "\uff0e\uff0e",
    "%2e%2e",
    "a" * 65,
    "é",
    None,
    7,
    b"ses_1",
    ["ses_1"],
]


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_hostile_ids_are_refused(value: object) -> None:
    assert not is_id(value)
    with pytest.raises(InvalidId) as caught:
        check_id(value, "session")
    assert caught.value.code == "usage.invalid_id"


def test_a_refused_id_is_not_repeated_at_length() -> None:
    with pytest.raises(InvalidId) as caught:
        check_id("x" * 1_000_000, "session")
    assert len(str(caught.value)) < 200


@given(st.text(max_size=80))
def test_a_text_accepted_as_id_stays_in_its_directory(text: str) -> None:
    if is_id(text):
        base = Path("/base")
        assert (base / text).parent == base
        assert text.isascii() and text.isprintable() and len(text) <= 64
        assert not text.startswith(("-", "."))


def test_random_tokens_do_not_repeat() -> None:
    tokens = {make_random_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert {len(token) for token in tokens} == {32}


def test_ids_of_a_forked_process_do_not_meet_those_of_the_other() -> None:
    """Also while the wall clock stands still, or was set back."""
    program = """
import os, time
time.time_ns = lambda: 1_000_000_000_000_000_000
from holdfast.ids import make_id
make_id("run")
reads, writes = os.pipe()
child = os.fork()
made = [make_id("run") for _ in range(100)]
if not child:
    os.write(writes, " ".join(made).encode())
    os._exit(0)
os.waitpid(child, 0)
print(len(set(made) & set(os.read(reads, 100_000).decode().split())))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert ended.stdout == b"0\n", ended.stderr
