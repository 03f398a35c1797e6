"""Whatever the conversation: a valid answer, and an end."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.messages import Message, TextPart, ToolPart, ToolSpec
from holdfast.providers.json_schema import fits
from holdfast.providers.model import Finished, ModelRequest
from holdfast.providers.offline import MAX_ROUNDS, OfflineModel

TEXT = {"type": "string"}
SPECS = {
    "list": {"path": TEXT},
    "read": {"file_path": TEXT, "limit": {"type": "integer"}},
    "grep": {"pattern": TEXT, "path": TEXT},
    "glob": {"pattern": TEXT},
    "calculator": {"operation": TEXT, "a": {"type": "number"}, "b": {"type": "number"}},
    "final_answer": {"answer": TEXT},
}
GOALS = st.one_of(
    st.text(max_size=200),
    st.sampled_from(
        [
            "Describe this workspace",
            "What is (15 + 2) * 23 - 4?",
            "find TODOs",
            "where is `main` defined?",
            "read README.md",
            "Make a plan to fix HeatSource and write tests",
        ]
    ),
)
OUTPUTS = st.one_of(
    st.text(max_size=300),
    st.sampled_from(
        ["README.md\nsrc/\n  a.py\n", "[project]\nname='x'", "345", "No matches", "{}"]
    ),
)


@st.composite
def tools(draw: st.DrawFn) -> tuple[ToolSpec, ...]:
    names = draw(st.lists(st.sampled_from(sorted(SPECS)), unique=True))
    return tuple(
        ToolSpec(
            name=name,
            description=name,
            parameters={
                "type": "object",
                "properties": SPECS[name],
                "required": draw(st.sampled_from([[], sorted(SPECS[name])])),
            },
        )
        for name in names
    )


def ask(request: ModelRequest) -> Message:
    async def run() -> list[Any]:
        return [delta async for delta in OfflineModel().stream(request)]

    deltas = asyncio.run(run())
    assert isinstance(deltas[-1], Finished)
    return deltas[-1].message


@settings(max_examples=60)
@given(
    goal=GOALS,
    offered=tools(),
    outputs=st.lists(st.tuples(OUTPUTS, st.booleans()), min_size=1, max_size=6),
    choice=st.sampled_from(["auto", "auto", "required", "none", "read"]),
)
def test_any_conversation_ends_with_a_valid_answer(
    goal: str, offered: tuple[ToolSpec, ...], outputs: list[tuple[str, bool]], choice: str
) -> None:
    messages = [Message(id="m", session_id="s", role="user", parts=(TextPart(text=goal),))]
    by_name = {tool.name: tool for tool in offered}
    for turn in range(MAX_ROUNDS + 1):
        request = ModelRequest(messages=tuple(messages), tools=offered, tool_choice=choice)
        answer = ask(request)
        assert answer.metadata["offline"] is True
        msgspec.json.encode(answer)
        for call in answer.tool_calls:
            assert fits(call.input, by_name[call.tool].parameters)
        if not answer.tool_calls:
            assert answer.text
            return
        assert choice != "none"
        output, has_failed = outputs[turn % len(outputs)]
        done: dict[str, Any] = {"state": "completed", "output": output}
        if has_failed:
            done = {"state": "error", "error": output}
        parts = tuple(
            ToolPart(call_id=call.call_id, tool=call.tool, **done) for call in answer.tool_calls
        )
        messages += [answer, Message(id="t", session_id="s", role="tool", parts=parts)]
    raise AssertionError("it never came to an end")


LEAVES = st.sampled_from(
    [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"type": "null"},
     {"enum": ["PASS", "RETRY"]}, {"type": "number", "minimum": 3}, {}]
)  # fmt: skip
NAMES = st.sampled_from(["steps", "answer", "verdict", "goal", "id", "reason", "other"])
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items, "minItems": 1}, inner),
        st.builds(
            lambda named: {"type": "object", "properties": named, "required": sorted(named)},
            st.dictionaries(NAMES, inner, max_size=4),
        ),
        st.builds(lambda one, two: {"anyOf": [one, two]}, inner, inner),
    ),
    max_leaves=8,
)


@settings(max_examples=80)
@given(goal=GOALS, schema=SCHEMAS)
def test_any_schema_gets_a_fitting_value_or_a_refusal(goal: str, schema: dict[str, Any]) -> None:
    message = Message(id="m", session_id="s", role="user", parts=(TextPart(text=goal),))
    answer = ask(ModelRequest(messages=(message,), output_schema=schema))
    if not answer.text.startswith("I cannot give an answer of the asked form"):
        assert fits(msgspec.json.decode(answer.text), schema)
