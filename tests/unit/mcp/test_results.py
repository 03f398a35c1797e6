"""Whatever a server answers becomes a result; data is kept, links are not followed."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from holdfast.mcp.results import render_error, to_result
from holdfast.testing import make_tool_context
from holdfast.tools import ToolContext, ToolResult, Workspace

PNG = base64.b64encode(b"\x89PNG").decode()


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    return make_tool_context(workspace=Workspace(tmp_path))


async def result(context: ToolContext, *content: Any, **more: Any) -> ToolResult:
    return await to_result({"content": list(content), **more}, context)


async def test_texts_stand_one_after_the_other(context: ToolContext) -> None:
    found = await result(context, {"type": "text", "text": "a"}, {"type": "text", "text": "b"})
    assert (found.output, found.is_error) == ("a\n\nb", False)


async def test_error_stays_an_error(context: ToolContext) -> None:
    found = await result(context, {"type": "text", "text": "no"}, isError=True)
    assert (found.output, found.is_error) == ("no", True)


async def test_structured_answer_is_shown_where_there_is_no_text(context: ToolContext) -> None:
    found = await result(context, structuredContent={"a": 1})
    assert (found.output, found.metadata) == ('{"a":1}', {"structured": {"a": 1}})
    beside = await result(context, {"type": "text", "text": "one"}, structuredContent={"a": 1})
    assert beside.output == "one"


async def test_images_are_attached_up_to_a_number(context: ToolContext) -> None:
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    found = await result(context, *[image] * 10)
    assert [one.media_type for one in found.attachments] == ["image/png"] * 8
    assert found.output.count("artifact") == 2


async def test_other_data_is_kept_beside_the_answer(context: ToolContext) -> None:
    sound = {"type": "audio", "data": PNG, "mimeType": "audio/wav"}
    blob = {"type": "resource", "resource": {"uri": "x://y", "blob": PNG}}
    text = {"type": "resource", "resource": {"uri": "x://y", "text": "inside"}}
    link = {"type": "resource_link", "uri": "https://evil.example/", "name": "click"}
    found = await result(context, sound, blob, text, link)
    assert found.attachments == ()
    handle = found.output.split("artifact ")[1].split("]")[0]
    assert await context.artifacts.load(handle) == b"\x89PNG"
    assert "[x://y]\ninside" in found.output
    assert "[link to https://evil.example/: click]" in found.output


@pytest.mark.parametrize(
    "block",
    [
        None,
        7,
        [],
        {},
        {"type": "text"},
        {"type": "text", "text": 3},
        {"type": "image", "data": "!", "mimeType": "image/png"},
        {"type": "image", "data": None, "mimeType": 3},
        {"type": "image", "data": "ü"},
        {"type": "resource", "resource": "no"},
        {"type": "resource_link", "uri": {}},
        {"type": "\x1b[2J"},
    ],
)
async def test_malformed_parts_become_words(context: ToolContext, block: Any) -> None:
    assert "\x1b" not in (await result(context, block)).output


@pytest.mark.parametrize("content", [None, "text", {}, 3])
async def test_answer_without_parts_is_empty(context: ToolContext, content: Any) -> None:
    assert (await to_result({"content": content}, context)).output == ""


async def test_flood_of_parts_is_cut(context: ToolContext) -> None:
    found = await result(context, *[{"type": "text", "text": "x"}] * 1000)
    assert found.output.endswith("[744 more parts left out]")


def test_errors_are_one_short_line_without_the_token() -> None:
    shown = render_error("bad\n token tok-1 " + "x" * 9_000, ["tok-1", ""])
    assert shown.startswith("bad token [token] xxx")
    assert len(shown) < 2_100
