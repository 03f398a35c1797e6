import asyncio
import os

import pytest

from holdfast.errors import (
    FileMissing,
    FileUnsuitable,
    PermissionDenied,
    TellModel,
    ToolInputInvalid,
)
from holdfast.tools import Intent
from holdfast.tools.builtin.edit import edit

SOURCE = "def a():\n    return 1\n\n\ndef b():\n    return 2\n"


async def test_exact_text_is_replaced_and_the_difference_shown(call, root):
    (root / "a.py").write_text(SOURCE)
    result = await call(edit, file_path="a.py", old_string="return 2", new_string="return 3")
    assert (root / "a.py").read_text() == SOURCE.replace("2", "3")
    assert "-    return 2\n+    return 3" in result.output
    assert (result.metadata["added"], result.metadata["removed"]) == (1, 1)


async def test_nothing_matches_shows_the_nearest_text_with_its_lines(call, root):
    (root / "a.py").write_text(SOURCE)
    with pytest.raises(TellModel) as caught:
        await call(edit, file_path="a.py", old_string="def b():\n  return 2", new_string="x")
    assert "lines 5-6" in caught.value.text
    assert "     6\t    return 2" in caught.value.text
    assert "white space" in caught.value.text
    assert (root / "a.py").read_text() == SOURCE


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("DEF A():", "capital"),
        ("return 11", "lines 2-2"),
        ("@@@@@@@@", "nor does anything like it"),
    ],
)
async def test_hint_says_what_is_near(call, root, old, hint):
    (root / "a.py").write_text(SOURCE)
    with pytest.raises(TellModel) as caught:
        await call(edit, file_path="a.py", old_string=old, new_string="x")
    assert hint in caught.value.text


async def test_too_many_matches_name_their_lines(call, root):
    (root / "a.py").write_text(SOURCE)
    with pytest.raises(TellModel) as caught:
        await call(edit, file_path="a.py", old_string="return", new_string="yield")
    assert "lines 2, 6" in caught.value.text
    await call(edit, file_path="a.py", old_string="return", new_string="yield", replace_all=True)
    assert (root / "a.py").read_text() == SOURCE.replace("return", "yield")


async def test_overlapping_matches_are_too_many(call, root):
    (root / "f").write_text("aaa")
    with pytest.raises(TellModel):
        await call(edit, file_path="f", old_string="aa", new_string="b")


@pytest.mark.parametrize(("old", "new"), [("", "x"), ("same", "same")])
async def test_edit_that_cannot_mean_anything_is_told(call, root, old, new):
    (root / "f").write_text("same")
    with pytest.raises(TellModel):
        await call(edit, file_path="f", old_string=old, new_string=new)


async def test_crlf_file_stays_crlf(call, root):
    (root / "f").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    await call(edit, file_path="f", old_string="one\ntwo", new_string="1\n2\n2.5")
    assert (root / "f").read_bytes() == b"1\r\n2\r\n2.5\r\nthree\r\n"


async def test_mixed_line_ends_are_left_as_they_are(call, root):
    (root / "f").write_bytes(b"one\r\ntwo\nthree\n")
    await call(edit, file_path="f", old_string="two", new_string="2")
    assert (root / "f").read_bytes() == b"one\r\n2\nthree\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
async def test_encoding_is_kept(call, root, encoding):
    (root / "f").write_bytes("grüne Wiese".encode(encoding))
    await call(edit, file_path="f", old_string="Wiese", new_string="Männer")
    assert (root / "f").read_bytes() == "grüne Männer".encode(encoding)


async def test_character_that_the_encoding_lacks_is_told_and_nothing_written(call, root):
    (root / "f").write_bytes("süß".encode("latin-1"))
    with pytest.raises(TellModel):
        await call(edit, file_path="f", old_string="s", new_string="€")
    assert (root / "f").read_bytes() == "süß".encode("latin-1")


async def test_missing_binary_huge_and_outside_are_refused(call, root):
    (root / "b").write_bytes(b"\0\1")
    (root / "huge").touch()
    os.truncate(root / "huge", 10**12)
    (root / "out").symlink_to("/etc/passwd")
    for path, error in (
        ("nope", FileMissing),
        ("b", FileUnsuitable),
        ("huge", FileUnsuitable),
        ("out", PermissionDenied),
    ):
        with pytest.raises(error):
            await call(edit, file_path=path, old_string="a", new_string="b")


async def test_concurrent_edits_all_count(call, root):
    (root / "f").write_text("".join(f"line {n}.\n" for n in range(40)))
    await asyncio.gather(
        *(
            call(edit, file_path="f", old_string=f"line {n}.", new_string=f"done {n}.")
            for n in range(40)
        )
    )
    assert (root / "f").read_text() == "".join(f"done {n}.\n" for n in range(40))
    assert os.listdir(root) == ["f"]


def intent(arguments, noted):
    return Intent(
        tool="edit",
        version=edit.version,
        call_id="c",
        idempotency_key="k",
        arguments=arguments,
        noted=noted,
    )


async def test_after_a_crash_the_file_tells_whether_the_edit_happened(call, context, root):
    (root / "f").write_text("one two")
    arguments = {"file_path": "f", "old_string": "two", "new_string": "2"}
    noted = await edit.prepare(arguments, context)
    assert (root / "f").read_text() == "one two"
    before = await edit.reconcile(intent(arguments, noted), context)
    assert before.verdict == "not_happened"
    await call(edit, **arguments)
    after = await edit.reconcile(intent(arguments, noted), context)
    assert (after.verdict, after.result.title) == ("happened", "f")
    (root / "f").write_text("somebody else")
    assert (await edit.reconcile(intent(arguments, noted), context)).verdict == "unknown"
    (root / "f").unlink()
    assert (await edit.reconcile(intent(arguments, noted), context)).verdict == "unknown"


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"file_path": "f", "old_string": "a"},
        {"file_path": "f", "old_string": 1, "new_string": ""},
        {"file_path": "f", "old_string": "a", "new_string": "b", "replace_all": 1},
    ],
)
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ToolInputInvalid):
        edit.validate(arguments)
