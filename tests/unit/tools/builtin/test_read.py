import asyncio
import base64
import json
import os
import threading

import pytest

from holdfast.errors import (
    FileMissing,
    FileUnsuitable,
    PermissionDenied,
    TellModel,
    ToolInputInvalid,
)
from holdfast.tools.builtin.read import read

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def lines(result):
    return [line.partition("\t")[2] for line in result.output.splitlines() if "\t" in line]


async def test_text_comes_with_line_numbers(call, root):
    (root / "a.txt").write_text("one\ntwo\n")
    result = await call(read, file_path="a.txt")
    assert result.output == "     1\tone\n     2\ttwo"
    assert result.metadata == {"first_line": 1, "last_line": 2, "is_truncated": False}


async def test_offset_and_limit_choose_lines_and_say_how_to_go_on(call, root):
    (root / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 101)))
    result = await call(read, file_path="a.txt", offset=11, limit=5)
    assert lines(result) == [f"line {n}" for n in range(11, 16)]
    assert "offset=16" in result.output
    assert result.metadata["is_truncated"]
    last = await call(read, file_path="a.txt", offset=96, limit=5)
    assert not last.metadata["is_truncated"]


async def test_offset_behind_the_end_is_told(call, root):
    (root / "a.txt").write_text("one\n")
    with pytest.raises(TellModel):
        await call(read, file_path="a.txt", offset=5)


async def test_empty_file_is_said_to_be_empty(call, root):
    (root / "empty").touch()
    assert "empty" in (await call(read, file_path="empty")).output


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"file_path": 3},
        {"file_path": ""},
        {"file_path": "a", "offset": 0},
        {"file_path": "a", "offset": "1"},
        {"file_path": "a", "limit": True},
        {"file_path": "a", "limit": 0},
    ],
)
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ToolInputInvalid):
        read.validate(arguments)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("grün\n".encode(), "grün"),
        (b"\xef\xbb\xbf" + "grün\n".encode(), "grün"),
        ("grün\n".encode("utf-16"), "grün"),
        (b"\xfe\xff" + "grün\n".encode("utf-16-be"), "grün"),
        ("grün\n".encode("latin-1"), "grün"),
        (b"dos\r\n", "dos"),
    ],
)
async def test_encodings_are_understood(call, root, data, text):
    (root / "a.txt").write_bytes(data)
    assert lines(await call(read, file_path="a.txt")) == [text]


async def test_wrong_byte_far_inside_does_not_break_reading(call, root):
    (root / "a.txt").write_bytes(b"ok\n" * 40_000 + b"gr\xfcn\n")
    result = await call(read, file_path="a.txt", offset=40_001)
    assert lines(result) == ["grün"]


async def test_long_lines_are_cut_wherever_the_cut_falls(call, root):
    for start in range(4):
        (root / "a.txt").write_text("x" * start + "ü€𝄞" * 500_000 + "\nend\n")
        found = lines(await call(read, file_path="a.txt"))
        assert len(found) == 2
        assert len(found[0]) < 2_100
        assert found[0].endswith("(line cut)")
        assert "\ufffd" not in found[0]
        assert found[1] == "end"


async def test_huge_file_is_not_loaded(call, root):
    (root / "huge").write_bytes(b"first\n" * 20_000)
    os.truncate(root / "huge", 10**12)
    result = await call(read, file_path="huge", limit=3)
    assert lines(result) == ["first"] * 3


async def test_output_is_bounded_as_a_whole(call, root):
    (root / "wide").write_text(("x" * 1_900 + "\n") * 5_000)
    result = await call(read, file_path="wide")
    assert len(result.output) < 300_000
    assert result.metadata["is_truncated"]


async def test_binary_file_is_refused(call, root):
    (root / "a.bin").write_bytes(bytes(range(256)) * 10)
    with pytest.raises(FileUnsuitable) as caught:
        await call(read, file_path="a.bin")
    assert caught.value.code == "file.unsuitable"


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89arest", "image/gif"),
        (b"RIFF1234WEBPrest", "image/webp"),
    ],
)
async def test_image_is_attached_whatever_its_name(call, root, data, media_type):
    (root / "picture").write_bytes(data)
    result = await call(read, file_path="picture")
    (part,) = result.attachments
    assert (part.media_type, part.name, part.data) == (media_type, "picture", data)


async def test_too_large_image_is_refused(call, root):
    (root / "big.png").write_bytes(PNG)
    os.truncate(root / "big.png", 11 * 1024 * 1024)
    with pytest.raises(FileUnsuitable):
        await call(read, file_path="big.png")


async def test_notebook_is_shown_as_cells_with_outputs(call, root):
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "id": "c1",
            "source": "1/0",
            "outputs": [
                {"output_type": "stream", "text": ["hello\n"]},
                {"output_type": "error", "ename": "E", "traceback": ["\x1b[31mboom\x1b[0m"]},
                {
                    "output_type": "display_data",
                    "data": {
                        "text/plain": "<Figure>",
                        "image/png": base64.b64encode(PNG).decode(),
                    },
                },
            ],
        },
    ]
    (root / "n.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    result = await call(read, file_path="n.ipynb")
    assert lines(result) == [
        "--- cell 1 (markdown)",
        "# Title",
        "text",
        "--- cell 2 (code) id=c1",
        "1/0",
        "--- output",
        "hello",
        "--- output",
        "boom",
        "--- output",
        "<Figure>",
        "(image 1: image/png)",
    ]
    assert result.attachments[0].data == PNG


async def test_broken_notebook_is_shown_as_text(call, root):
    (root / "n.ipynb").write_text("{broken")
    assert lines(await call(read, file_path="n.ipynb")) == ["{broken"]


async def test_missing_file_names_the_nearest(call, root):
    (root / "README.md").touch()
    with pytest.raises(TellModel) as caught:
        await call(read, file_path="readme.rst")
    assert "README.md" in caught.value.text
    with pytest.raises(FileMissing):
        await call(read, file_path="zzz")


async def test_directory_pipe_and_way_out_are_refused(call, root):
    (root / "d").mkdir()
    os.mkfifo(root / "fifo")
    (root / "out").symlink_to("/etc/passwd")
    for path in ("d", "fifo"):
        with pytest.raises(FileUnsuitable):
            await call(read, file_path=path)
    for path in ("out", "/etc/passwd", "../x"):
        with pytest.raises(PermissionDenied):
            await call(read, file_path=path)


async def test_cancelled_call_tells_its_thread(context, root):
    started, stopped = threading.Event(), threading.Event()

    def slow():
        started.set()
        while not context.cancellation.is_cancelled:
            stopped.wait(0.01)
        stopped.set()

    task = asyncio.create_task(context.look(slow))
    assert await asyncio.to_thread(started.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(stopped.wait, 10)


@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.md"])
async def test_nearest_instructions_of_a_file_below_are_named(call, root, name):
    (root / "AGENTS.md").write_text("of the top, which the prompt shows")
    (root / "pkg" / "deep").mkdir(parents=True)
    (root / "pkg" / name).write_text("of the package")
    (root / "pkg" / "deep" / "a.txt").write_text("one\n")
    result = await call(read, file_path="pkg/deep/a.txt")
    assert result.metadata["instructions"] == f"pkg/{name}"
    assert result.output.endswith("read it before you change files here)")
    assert "of the package" not in result.output
    own = await call(read, file_path=f"pkg/{name}")
    assert "instructions" not in own.metadata
    (root / "a.txt").write_text("one\n")
    assert "instructions" not in (await call(read, file_path="a.txt")).metadata
