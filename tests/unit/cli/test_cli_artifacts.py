"""`holdfast artifacts`: every command by hand, and previews on a real terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.app import root
from holdfast.cli.exits import ExitCode

KEY, OTHER = "a" * 43 + "=", "b" * 43 + "="


def call(place: Path, *words: str, data: bytes = b"", **variables: str) -> Result:
    given = ["artifacts", *words, "--state-dir", str(place)]
    return CliRunner().invoke(root, given, input=data, env={"HOME": str(place), **variables})


def answer(place: Path, *words: str, **variables: str) -> Any:
    result = call(place, *words, "--json", **variables)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def save(place: Path, name: str, data: bytes, *words: str, **variables: str) -> str:
    (place / "in").mkdir(exist_ok=True)
    (place / "in" / name).write_bytes(data)
    found: str = answer(place, "save", str(place / "in" / name), *words, **variables)["id"]
    return found


def make_png(width: int, height: int) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    rows = b"".join(b"\0" + bytes([200, 10, y]) * width for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def on_terminal(place: Path, *words: str) -> str:
    """Return what a person sees who calls the program on a terminal."""
    child, screen = pty.fork()
    if child == 0:
        os.environ.update(HOME=str(place), TERM="xterm-256color", COLUMNS="100")
        os.environ.pop("NO_COLOR", None)
        given = ["artifacts", *words, "--state-dir", str(place)]
        os.execv(sys.executable, [sys.executable, "-m", "holdfast", *given])
    seen = bytearray()
    try:
        while piece := os.read(screen, 65536):
            seen += piece
    except OSError:
        pass  # the other side is closed
    os.close(screen)
    os.waitpid(child, 0)
    return seen.decode()


def test_a_file_is_saved_listed_shown_fetched_and_removed(tmp_path: Path) -> None:
    first = save(tmp_path, "a.txt", b"one", "--tag", "demo", "--kind", "system")
    second = save(tmp_path, "a.txt", b"two", "--tag", "demo", "--ttl", "2h")
    other = save(tmp_path, "b.csv", b"x,y\n1,2\n")
    listed = answer(tmp_path, "list")
    assert [one["id"] for one in listed] == [other, second]
    assert [one["id"] for one in answer(tmp_path, "list", "--tag", "demo")] == [second]
    assert len(answer(tmp_path, "list", "--all-versions")) == 3
    assert answer(tmp_path, "list", "--kind", "system", "--all-versions")[0]["id"] == first
    assert [one["version"] for one in answer(tmp_path, "show", second, "--versions")] == [2, 1]
    known = answer(tmp_path, "show", second)
    assert (known["previous"], known["media_type"]) == (first, "text/plain")
    assert known["expires_at"] == pytest.approx(known["time"] + 7200, abs=5)
    assert re.search(r"time +\d{4}-\d\d-\d\d ", call(tmp_path, "show", second).stdout)
    assert call(tmp_path, "get", first, "--to", "-").stdout_bytes == b"one"
    target = tmp_path / "out.txt"
    assert call(tmp_path, "get", second, "--to", str(target)).exit_code == 0
    assert target.read_bytes() == b"two"
    refused = call(tmp_path, "get", second, "--to", str(target))
    assert refused.exit_code == ExitCode.USAGE and "exists already" in refused.stderr
    assert call(tmp_path, "get", first, "--to", str(target), "--force").exit_code == 0
    assert target.read_bytes() == b"one"
    assert answer(tmp_path, "rm", second, "--all-versions")["deleted"] == [second, first]
    assert [one["id"] for one in answer(tmp_path, "list")] == [other]
    assert call(tmp_path, "show", first).exit_code == ExitCode.USAGE


def test_standard_input_needs_a_name_and_a_digest_is_held_to(tmp_path: Path) -> None:
    assert call(tmp_path, "save", "-", data=b"x").exit_code == ExitCode.USAGE
    assert call(tmp_path, "save", "-", "--name", "in", data=b"x").exit_code == 0
    wrong = call(tmp_path, "save", "-", "--name", "in", "--sha256", "0" * 64, data=b"y")
    assert wrong.exit_code == ExitCode.USAGE
    for words in (
        ("save", "-", "--name", "../up"),
        ("save", str(tmp_path / "nothing")),
        ("save", "-", "--name", "in", "--ttl", "soon"),
        ("get", "art_none"),
        ("rm", "art_none"),
    ):
        result = call(tmp_path, *words, data=b"z")
        assert result.exit_code != 0 and "error:" in result.stderr
    assert len(answer(tmp_path, "list", "--all-versions")) == 1


def test_upkeep_says_what_it_did_and_a_damaged_file_fails(tmp_path: Path) -> None:
    kept = save(tmp_path, "a.txt", b"text " * 1000)
    assert "Every artifact is what was saved" in call(tmp_path, "verify").stdout
    assert answer(tmp_path, "gc")["blobs_removed"] == 0
    encrypted = answer(tmp_path, "rekey", HOLDFAST_ARTIFACT_KEY=KEY)
    assert (encrypted["rekeyed"], encrypted["failed"]) == (1, [])
    assert call(tmp_path, "get", kept, "--to", "-").exit_code != 0
    keys = {"HOLDFAST_ARTIFACT_KEY": OTHER, "HOLDFAST_ARTIFACT_FORMER_KEY": KEY}
    assert answer(tmp_path, "rekey", **keys)["rekeyed"] == 1
    read = call(tmp_path, "get", kept, "--to", "-", HOLDFAST_ARTIFACT_KEY=OTHER)
    assert read.stdout_bytes == b"text " * 1000
    [blob] = [one for one in (tmp_path / "artifacts/blobs").rglob("*") if one.is_file()]
    blob.write_bytes(blob.read_bytes()[:-1])
    found = call(tmp_path, "verify", "--json", HOLDFAST_ARTIFACT_KEY=OTHER)
    assert found.exit_code == ExitCode.FAILED
    assert json.loads(found.stdout)[0]["artifact_id"] == kept
    failed = call(tmp_path, "rekey", "--json", HOLDFAST_ARTIFACT_KEY=KEY)
    assert failed.exit_code == ExitCode.FAILED and json.loads(failed.stdout)["failed"]


def test_sharing_needs_a_key_lists_and_is_taken_back(tmp_path: Path) -> None:
    kept = save(tmp_path, "a.txt", b"text")
    unsigned = call(tmp_path, "share", kept)
    assert unsigned.exit_code != 0 and "HOLDFAST_LINK_KEY" in unsigned.stderr
    key = {"HOLDFAST_LINK_KEY": "k" * 40}
    link = answer(tmp_path, "share", kept, "--expires", "15m", **key)
    assert link["token"].startswith("hfl1.")
    answer(tmp_path, "share", kept, "--with", "ann", "--access", "write", **key)
    found = answer(tmp_path, "share", kept, "--list", **key)
    assert {one["subject"] or one["link_id"] for one in found} == {"ann", link["link_id"]}
    for given in ("ann", link["link_id"]):
        assert call(tmp_path, "share", kept, "--revoke", given, **key).exit_code == 0
    assert answer(tmp_path, "share", kept, "--list", **key) == []


def test_a_terminal_shows_images_as_blocks_tables_as_tables_and_obeys_nothing(
    tmp_path: Path,
) -> None:
    image = save(tmp_path, "a.png", make_png(8, 4))
    seen = on_terminal(tmp_path, "show", image)
    assert seen.count("▀") == 8 * 2 and "\x1b[38;2;200;10;0;48;2;200;10;1m▀" in seen
    table = save(tmp_path, "a.csv", b"name,age\n[red]ann[/red],\x1b[31m4\n")
    seen = on_terminal(tmp_path, "show", table)
    assert "[red]ann[/red]" in seen and "\x1b[31m" not in seen and "┃" in seen
    text = save(tmp_path, "a.md", b"first\n\x1b]0;title\x07second\n" + b"more\n" * 100)
    seen = on_terminal(tmp_path, "show", text)
    assert "first" in seen and "\x1b]0;" not in seen and "more lines" in seen
    bomb = save(tmp_path, "bomb.png", make_png(4, 4).replace(struct.pack(">II", 4, 4), b"\x7f" * 8))
    assert "no preview" in on_terminal(tmp_path, "show", bomb)
