import asyncio
import os
import threading

import pytest

from holdfast.errors import FileUnsuitable, PermissionDenied, ToolInputInvalid
from holdfast.tools.builtin.write import write


async def test_new_file_is_written_with_its_parents(call, root):
    result = await call(write, file_path="a/b/c.txt", content="one\ntwo\n")
    assert (root / "a/b/c.txt").read_bytes() == b"one\ntwo\n"
    assert result.output.startswith("Created a/b/c.txt (+2 -0).")
    assert result.metadata["is_new"]


async def test_difference_is_shown_and_the_mode_is_kept(call, root):
    target = root / "run.sh"
    target.write_text("".join(f"{n}\n" for n in range(20)))
    target.chmod(0o755)
    lines = [f"{n}\n" for n in range(20)]
    lines[10] = "ten\n"
    result = await call(write, file_path="run.sh", content="".join(lines))
    assert result.output.splitlines() == [
        "Wrote run.sh (+1 -1).",
        "--- a/run.sh",
        "+++ b/run.sh",
        "@@ -8,7 +8,7 @@",
        " 7",
        " 8",
        " 9",
        "-10",
        "+ten",
        " 11",
        " 12",
        " 13",
    ]
    assert os.stat(target).st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\xef\xbb\xbfalt\n", b"\xef\xbb\xbf" + "grün\n".encode()),
        ("grün".encode("utf-16"), b"\xff\xfe" + "grün\n".encode("utf-16-le")),
        ("süß\n".encode("latin-1"), "grün\n".encode("latin-1")),
        (b"a\r\nb\r\n", "grün\r\n".encode()),
        (b"a\nb\r\n", "grün\n".encode()),
        (b"\x00\x01binary", "grün\n".encode()),
    ],
)
async def test_encoding_and_line_ends_are_kept(call, root, before, after):
    (root / "f").write_bytes(before)
    await call(write, file_path="f", content="grün\n")
    assert (root / "f").read_bytes() == after


async def test_text_that_latin_1_cannot_hold_becomes_utf_8(call, root):
    (root / "f").write_bytes("süß".encode("latin-1"))
    await call(write, file_path="f", content="5 €")
    assert (root / "f").read_bytes() == "5 €".encode()


async def test_same_content_is_no_change(call, root):
    (root / "f").write_text("x")
    assert "no change" in (await call(write, file_path="f", content="x")).output


async def test_large_replacement_is_summarised(call, root):
    (root / "f").write_text("old\n" * 10_000)
    result = await call(write, file_path="f", content="new\n" * 10_000)
    assert len(result.output) < 500
    assert result.metadata["added"] == 10_000


async def test_directory_and_outside_are_refused(call, root):
    (root / "d").mkdir()
    (root / "out").symlink_to("/etc")
    with pytest.raises(FileUnsuitable):
        await call(write, file_path="d", content="")
    for path in ("/etc/x", "../x", "out/x", ".git/hooks/pre-commit"):
        with pytest.raises(PermissionDenied):
            await call(write, file_path=path, content="")


@pytest.mark.parametrize(
    "arguments", [{}, {"file_path": "a"}, {"file_path": "a", "content": 1}, {"content": ""}]
)
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ToolInputInvalid):
        write.validate(arguments)


async def test_cancelled_write_is_whole_or_absent_and_over_when_it_is_reported(context, root):
    started, may_go = threading.Event(), threading.Event()

    def change(before):
        started.set()
        assert may_go.wait(10)
        return b"new" * 100_000

    (root / "f").write_bytes(b"old")
    task = asyncio.create_task(context.act(context.workspace.update, "f", change))
    assert await asyncio.to_thread(started.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    may_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (root / "f").read_bytes() == b"new" * 100_000
    assert os.listdir(root) == ["f"]
