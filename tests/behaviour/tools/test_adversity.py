"""Every tool meets every adversity that can befall it: a clear result, and nothing half done.

`TABLE` has a row for every tool that a client offers and a cell for every adversity. A cell is
the call to make, or the reason why the adversity cannot befall the tool; a new tool without a
row, and a row without a cell, fail.
"""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import AsyncClient
from holdfast.settings import load_settings
from holdfast.tools.gate import AutoConfirm

SECRET = "planted-secret-text"
NOBODY = 65534
ADVERSITIES = (
    "wrong types",
    "missing",
    "huge",
    "binary",
    "link out",
    "unreadable",
    "not utf-8",
    "concurrent",
    "cancelled",
)
NO_FILE = "it opens no file"
NO_CONTENT = "it looks at names, not into files"


def call(**arguments: object) -> dict[str, object]:
    return arguments


def fails(text: str, **arguments: object) -> tuple[str, dict[str, object]]:
    """A call that ends as an error which says this."""
    return text, arguments


def on_files(make, *, changes: bool) -> dict[str, object]:
    """The cells of a tool that opens the one file that it is given."""
    return {
        "missing": fails("nowhere.txt", **make("nowhere.txt")),
        "huge": fails("large", **make("huge.txt")) if changes else call(**make("huge.txt")),
        "binary": fails("binary", **make("bin.dat")),
        "link out": fails("link.txt", **make("link.txt")),
        "unreadable": fails("locked.txt", **make("locked.txt")),
        "not utf-8": call(**make("latin.txt")),
        "concurrent": call(**make("a.txt")),
        "cancelled": call(**make("a.txt")),
    }


def no_files(wrong, right) -> dict[str, object]:
    """The cells of a tool that opens no file."""
    cells: dict[str, object] = dict.fromkeys(ADVERSITIES, NO_FILE)
    return {**cells, "wrong types": wrong, "concurrent": right, "cancelled": right}


def edit_of(path: str) -> dict[str, object]:
    return {"file_path": path, "old_string": "two", "new_string": "2"}


def multiedit_of(path: str) -> dict[str, object]:
    edits = [{"old_string": "one", "new_string": "1"}, {"old_string": "two", "new_string": "2"}]
    return {"file_path": path, "edits": edits}


TABLE: dict[str, dict[str, object]] = {
    "read": {
        "wrong types": fails("file_path", file_path=3),
        **on_files(lambda path: {"file_path": path}, changes=False),
    },
    "edit": {
        "wrong types": fails("replace_all", **edit_of("a.txt"), replace_all="yes"),
        **on_files(edit_of, changes=True),
    },
    "multiedit": {
        "wrong types": fails("edits", file_path="a.txt", edits="all"),
        **on_files(multiedit_of, changes=True),
    },
    "write": {
        "wrong types": fails("content", file_path="a.txt", content=None),
        "missing": call(file_path="new/deep/file.txt", content="new"),
        "huge": fails("large", file_path="huge.txt", content="small"),
        "binary": call(file_path="bin.dat", content="text now"),
        "link out": fails("link.txt", file_path="link.txt", content="x"),
        "unreadable": fails("locked.txt", file_path="locked.txt", content="x"),
        "not utf-8": call(file_path="latin.txt", content="thé"),
        "concurrent": call(file_path="a.txt", content="one\n2\n"),
        "cancelled": call(file_path="a.txt", content="one\n2\n"),
    },
    "grep": {
        "wrong types": fails("limit", pattern="two", limit="many"),
        "missing": fails("nowhere", pattern="two", path="nowhere"),
        "huge": call(pattern="no such line", path="."),
        "binary": call(pattern="PLAIN", path="."),
        "link out": call(pattern="planted", path="."),
        "unreadable": call(pattern="locked", path="."),
        "not utf-8": call(pattern="caf", path="."),
        "concurrent": call(pattern="o", path="."),
        "cancelled": call(pattern="o", path="."),
    },
    "ast_grep_search": {
        "wrong types": fails("language", pattern="f($A)", language="klingon"),
        "missing": fails("nowhere", pattern="f($A)", language="python", paths=["nowhere"]),
        "huge": call(pattern="f($A)", language="python"),
        "binary": call(pattern="f($A)", language="python"),
        "link out": call(pattern="f($A)", language="python"),
        "unreadable": call(pattern="f($A)", language="python"),
        "not utf-8": call(pattern="f($A)", language="python"),
        "concurrent": call(pattern="f($A)", language="python"),
        "cancelled": call(pattern="f($A)", language="python"),
    },
    "glob": {
        "wrong types": fails("pattern", pattern=["*.txt"]),
        "missing": fails("nowhere", pattern="*", path="nowhere"),
        "huge": NO_CONTENT,
        "binary": NO_CONTENT,
        "link out": fails("linked", pattern="*", path="linked"),
        "unreadable": call(pattern="**/*"),
        "not utf-8": call(pattern="**/*"),
        "concurrent": call(pattern="**/*"),
        "cancelled": call(pattern="**/*"),
    },
    "list": {
        "wrong types": fails("ignore", ignore="*.py"),
        "missing": fails("nowhere", path="nowhere"),
        "huge": NO_CONTENT,
        "binary": NO_CONTENT,
        "link out": fails("linked", path="linked"),
        "unreadable": call(path="."),
        "not utf-8": call(path="."),
        "concurrent": call(path="."),
        "cancelled": call(path="."),
    },
    "lsp": {
        "wrong types": fails("operation", operation="guess", file_path="code.py"),
        "missing": fails("nowhere.py", operation="documentSymbol", file_path="nowhere.py"),
        "huge": fails("", operation="documentSymbol", file_path="huge.py"),
        "binary": fails("", operation="documentSymbol", file_path="bin.dat"),
        "link out": fails("link.py", operation="documentSymbol", file_path="link.py"),
        "unreadable": fails("", operation="documentSymbol", file_path="locked.py"),
        "not utf-8": fails("", operation="documentSymbol", file_path="latin.txt"),
        "concurrent": "the server reads its own copy; see tests/unit/tools/builtin/test_lsp.py",
        "cancelled": call(operation="documentSymbol", file_path="a.txt"),
    },
    "bash": {
        "wrong types": fails("timeout", command="true", timeout=-1),
        "missing": fails("nowhere", command="cat nowhere.txt"),
        "huge": call(command="wc -c huge.txt"),
        "binary": call(command="cat bin.dat"),
        "link out": fails("", command="cat link.txt"),
        "unreadable": fails("", command="cat locked.txt"),
        "not utf-8": call(command="cat latin.txt"),
        "concurrent": call(command="cat a.txt"),
        "cancelled": call(command="sleep 1000"),
    },
    "externaldirectory": {
        "wrong types": fails("path", path="relative"),
        "missing": fails("nowhere", path="/nowhere/at/all"),
        "huge": NO_CONTENT,
        "binary": NO_CONTENT,
        "link out": "it is the way out, and asks; its target is the real path",
        "unreadable": "a directory is granted by its name; reading in it fails as always",
        "not utf-8": NO_CONTENT,
        "concurrent": call(path="/usr/share"),
        "cancelled": call(path="/usr/share"),
    },
    "batch": {
        **no_files(
            fails("tool_calls", tool_calls=[{"tool": 3}]),
            call(tool_calls=[{"tool": "todoread"}, {"tool": "read", "parameters": {}}]),
        ),
        **dict.fromkeys(
            ("missing", "huge", "binary", "link out", "unreadable", "not utf-8"),
            "what befalls its calls is in their rows",
        ),
    },
    "calculator": no_files(
        fails("a", operation="add", a="1", b=2), call(operation="add", a=1, b=2)
    ),
    "codesearch": no_files(fails("query", query=""), fails("provider", query="x")),
    "websearch": no_files(fails("query", query=7), fails("provider", query="x")),
    "webfetch": no_files(fails("url", url=7), fails("network", url="https://example.org/")),
    "todoread": no_files(fails("", surprise=1), call()),
    "todowrite": no_files(
        fails("status", todos=[{"content": "x", "status": "maybe"}]),
        call(todos=[{"content": "x"}]),
    ),
    "question": no_files(fails("questions", questions=[]), call(questions=[{"question": "Why?"}])),
    "skill": no_files(fails("name", name=3), fails("", name="no-such-skill")),
    "remember": no_files(fails("importance", content="x", importance=2), call(content="x")),
    "recall": no_files(fails("query", query=""), call(query="x")),
    "search_history": no_files(fails("limit", query="x", limit=0), call(query="x")),
    "compact": no_files(fails("", surprise=1), call()),
    "plan_enter": no_files(fails("", surprise=1), call()),
    "plan_exit": no_files(fails("", surprise=1), call()),
    "task": no_files(
        fails("subagent_type", subagent_type=3, prompt="x"),
        fails("nobody-here", subagent_type="nobody-here", prompt="x"),
    ),
}


@pytest.fixture
def place(tmp_path):
    """A workspace with one of each, beside something that must stay untouched."""
    outside, made = tmp_path / "outside", tmp_path / "ws"
    outside.mkdir()
    made.mkdir()
    for name in ("secret.txt", "secret.py"):
        (outside / name).write_text(SECRET)
    (made / "a.txt").write_text("one\ntwo\n")
    (made / "a.txt").chmod(0o640)
    (made / "code.py").write_text("f(1)\n")
    (made / "bin.dat").write_bytes(bytes(range(256)) * 40 + b"PLAIN")
    (made / "latin.txt").write_bytes("one\ntwo café\n".encode("latin-1"))
    (made / "latin.py").write_bytes("f('café')\n".encode("latin-1"))
    (made / "link.txt").symlink_to(outside / "secret.txt")
    (made / "link.py").symlink_to(outside / "secret.py")
    (made / "linked").symlink_to(outside)
    for name in ("locked.txt", "locked.py"):
        (made / name).write_text("locked one\ntwo\n")
        (made / name).chmod(0)
    return made


def make_huge(place: Path) -> None:
    for name in ("huge.txt", "huge.py"):
        with open(place / name, "wb") as file:
            for _ in range(66):
                file.write(b"one line that goes on and on\n" * 36_158)


@contextmanager
def as_ordinary_user(folder: Path):
    """Let file modes mean something: root would read what nobody else can."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    for above in folder.parents:
        if above.stat().st_uid == 0 and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def snapshot(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file with its mode and size; what a tool leaves behind is seen."""
    return {
        str(path.relative_to(folder)): (stat.filemode(path.lstat().st_mode), path.lstat().st_size)
        for path in folder.rglob("*")
        if not path.is_dir()
    }


@pytest.fixture
async def client(tmp_path, place):
    chosen = {"workspace": str(place), "tools.dir": tmp_path / "tools"}
    settings = load_settings(overrides=chosen).settings
    async with AsyncClient(tmp_path / "state", settings=settings) as made:
        made.approver = AutoConfirm()
        yield made


CELLS = [
    pytest.param(name, adversity, id=f"{name}-{adversity}")
    for name, row in TABLE.items()
    for adversity in ADVERSITIES[:-2]
    if not isinstance(row[adversity], str)
]


async def test_every_tool_has_a_row_and_every_row_a_cell(tmp_path):
    offered = {tool.name for tool in await AsyncClient(tmp_path).tools.registry()}
    assert offered == set(TABLE)
    for name, row in TABLE.items():
        assert set(row) == set(ADVERSITIES), name
        assert "" not in row.values(), name


@pytest.mark.parametrize(("name", "adversity"), CELLS)
async def test_a_tool_in_adversity_says_what_is_wrong(client, place, tmp_path, name, adversity):
    cell = TABLE[name][adversity]
    if adversity == "huge":
        make_huge(place)
    before = snapshot(place)
    if adversity == "unreadable" and name != "bash":
        with as_ordinary_user(tmp_path):
            called = await client.tools.call(name, told(cell))
    else:
        called = await client.tools.call(name, told(cell))
    part = called.part
    assert SECRET not in part.output + part.error
    assert "Traceback" not in part.output + part.error
    if isinstance(cell, tuple):
        assert part.state == "error", part.output
        assert part.error
        assert cell[0] in part.error
        assert snapshot(place) == before
    else:
        assert part.state in ("completed", "pending"), part.error
        strange = [one for one in snapshot(place) if one not in before]
        assert strange == (["new/deep/file.txt"] if adversity == "missing" else [])
    assert called.run.status in ("completed", "parked")
    for name in ("secret.txt", "secret.py"):
        assert (tmp_path / "outside" / name).read_text() == SECRET


def told(cell) -> dict[str, object]:
    return cell[1] if isinstance(cell, tuple) else cell


WHOLE = list(TABLE)


@pytest.mark.parametrize("name", WHOLE)
async def test_a_tool_that_is_cancelled_in_the_middle_leaves_nothing_half_done(
    client, place, tmp_path, name
):
    cell = TABLE[name]["cancelled"]
    before, modes = snapshot(place), (place / "a.txt").stat().st_mode
    for ticks in (1, 3, 10, 30, 60, 100, 150):
        session = await client.create_session("s", directory=place)
        calling = asyncio.create_task(
            client.tools.call(name, told(cell), session_id=session.id, run_id=f"run_{ticks}")
        )
        for _ in range(ticks):
            if calling.done():
                break
            await asyncio.sleep(0)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        messages = (await client.list_messages(session.id)).items
        states = {part.state for one in messages for part in one.tool_calls}
        assert "running" not in states
        if "pending" in states:
            assert name == "question" or (await client.runs.get(f"run_{ticks}")).has_ended
        assert (place / "a.txt").read_text() in ("one\ntwo\n", "one\n2\n", "1\n2\n")
        assert (place / "a.txt").stat().st_mode == modes
        (place / "a.txt").write_text("one\ntwo\n")
    assert set(snapshot(place)) == set(before)


@pytest.mark.parametrize("name", [one for one in WHOLE if one != "lsp"])
async def test_calls_at_the_same_time_do_not_disturb_each_other(client, place, name):
    cell = TABLE[name]["concurrent"]
    sessions = [await client.create_session(f"s{n}", directory=place) for n in range(6)]
    results = await asyncio.gather(
        *[client.tools.call(name, told(cell), session_id=one.id) for one in sessions]
    )
    states = [one.part.state for one in results]
    if isinstance(cell, tuple):
        assert set(states) == {"error"}
    elif name in ("edit", "multiedit"):
        # The first one makes the change; the others find nothing to change, and say so.
        assert sorted(states) == ["completed"] + ["error"] * 5
    else:
        assert len(set(states)) == 1
        assert states[0] in ("completed", "pending")
    assert set(snapshot(place)) == {
        one for one in snapshot(place) if not one.rpartition("/")[2].startswith(".")
    }


async def test_edits_of_one_file_at_the_same_time_all_survive(client, place):
    slots = [f"slot-{n:02}" for n in range(12)]
    (place / "shared.txt").write_text("\n".join(slots))
    (place / "shared.txt").chmod(0o604)
    sessions = [await client.create_session(one, directory=place) for one in slots]
    results = await asyncio.gather(
        *[
            client.tools.call(
                "edit",
                {"file_path": "shared.txt", "old_string": slot, "new_string": f"done-{slot}"},
                session_id=session.id,
            )
            for slot, session in zip(slots, sessions, strict=True)
        ]
    )
    assert {one.part.state for one in results} == {"completed"}
    assert (place / "shared.txt").read_text() == "\n".join(f"done-{slot}" for slot in slots)
    assert stat.S_IMODE((place / "shared.txt").stat().st_mode) == 0o604
