"""The rescuer takes any text: no exception, no evaluation, only offered tools."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.messages import ToolSpec
from holdfast.providers.json_schema import list_problems
from holdfast.providers.rescue import rescue_calls

TOOL = ToolSpec(
    name="add",
    description="",
    parameters={
        "type": "object",
        "properties": {
            "a": {"type": "number"},
            "items": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["a"],
    },
)
PIECES = st.sampled_from(
    ["{", "}", "[", "]", "(", ")", '"', "'", ",", ":", "\\", "add", "tool", "name", "arguments",
     "```json\n", "```", "<tool_call>", "</tool_call>", "<function=add>", "1", "-", "1e999", "\n",
     " ", "true", "None", "\\ud800", "\x00", "é", "=", "**", "lambda", "9" * 30, "#", "\ud7ff"]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=400), st.lists(PIECES, max_size=60).map("".join))


@settings(max_examples=100)
@given(text=TEXTS, whole=st.booleans(), only=st.sampled_from(["", "add"]))
def test_any_text_is_read_without_harm(text: str, whole: bool, only: str) -> None:
    for call in rescue_calls(text, (TOOL,), whole=whole, only=only):
        assert call.tool == "add"
        assert (
            tuple(list_problems(call.arguments, TOOL.parameters)) == call.problems or call.problems
        )
        msgspec.json.encode(call.arguments)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=100)
@given(
    number=st.integers(-(2**53), 2**53),
    items=st.lists(st.text(max_size=20), max_size=3),
    form=st.sampled_from(["{}", "```json\n{}\n```", "<tool_call>\n{}\n</tool_call>", "  {}\n"]),
    as_text=st.booleans(),
)
def test_a_call_survives_every_wrapping(
    number: int, items: list[str], form: str, as_text: bool
) -> None:
    arguments: object = {"a": number, "items": items}
    given_as = msgspec.json.encode(arguments).decode() if as_text else arguments
    body = msgspec.json.encode({"name": "add", "arguments": given_as}).decode()
    for mark in ("```", "</tool_call>", "<tool_call>", "<function="):
        if mark in body:
            return
    found = rescue_calls(form.replace("{}", body), (TOOL,))
    assert [call.arguments for call in found] == [arguments]
    assert found[0].problems == ()


@settings(max_examples=60)
@given(value=JSON)
def test_other_json_is_no_call(value: object) -> None:
    text = msgspec.json.encode(value).decode()
    if '"add"' not in text:
        assert rescue_calls(text, (TOOL,)) == []
