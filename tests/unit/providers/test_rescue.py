from __future__ import annotations

import pytest

from holdfast.messages import ToolSpec
from holdfast.providers.rescue import looks_like_call, rescue_calls

ADD = ToolSpec(
    name="add",
    description="Add",
    parameters={
        "type": "object",
        "properties": {
            "a": {"type": "number"},
            "b": {"type": "number"},
            "exact": {"type": "boolean"},
            "note": {"type": ["string", "null"]},
        },
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
SAY = ToolSpec(
    name="say",
    description="Say",
    parameters={"type": "object", "properties": {"text": {"type": "string"}}},
)
TOOLS = (ADD, SAY)
WANTED = {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "text",
    [
        '{"tool": "add", "arguments": {"a": 1, "b": 2}}',
        '{"name": "add", "parameters": {"a": 1, "b": 2}}',
        '{"name": "add", "arguments": "{\\"a\\": 1, \\"b\\": 2}"}',
        '{"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}',
        '{"type": "function", "function": {"name": "add", "arguments": "{\\"a\\":1,\\"b\\":2}"}}',
        '{"tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]}',
        '[{"name": "add", "arguments": {"a": 1, "b": 2}}]',
        '{"add": {"a": 1, "b": 2}}',
        '{"tool": "add", "a": 1, "b": 2}',
        '{"name": "functions.add", "arguments": {"a": "1", "b": "2"}}',
        '```json\n{"tool": "add", "arguments": {"a": 1, "b": 2}}\n```',
        '```\n{"tool": "add", "arguments": {"a": 1, "b": 2}}\n```',
        '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>',
        '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}',
        '<function=add>{"a": 1, "b": 2}</function>',
        "{'tool': 'add', 'arguments': {'a': 1, 'b': 2,}}",
        "{'tool': 'add', 'arguments': {'a': 1, 'b': 2, 'exact': true, 'note': null}}",
        "add(a=1, b=2)",
        "[add(a=1, b=2)]",
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_a_written_call_is_found(text: str, whole: bool) -> None:
    found = rescue_calls(text, TOOLS, whole=whole)
    assert [call.tool for call in found] == ["add"]
    assert {key: found[0].arguments[key] for key in WANTED} == WANTED
    assert found[0].problems == ()


def test_a_call_inside_prose_counts_only_where_it_may() -> None:
    text = 'Sure! I will call {"tool": "add", "arguments": {"a": 1, "b": 2}} for you.'
    assert rescue_calls(text, TOOLS, whole=True) == []
    assert [call.arguments for call in rescue_calls(text, TOOLS)] == [WANTED]


def test_several_calls_keep_their_order() -> None:
    lines = '{"tool": "add", "arguments": {"a": 1, "b": 2}}\n{"tool": "say", "arguments": {}}'
    tagged = "".join(f"<tool_call>{line}</tool_call>" for line in lines.splitlines())
    for text in (lines, tagged, f"```\n{lines}\n```"):
        assert [call.tool for call in rescue_calls(text, TOOLS)] == ["add", "say"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello there",
        '{"tool": "format_disk", "arguments": {}}',
        '{"answer": "add"}',
        "add(1, 2)",
        "add(a=__import__('os').system('true'), b=2)",
        "add(**{'a': 1})",
        "[" * 100_000,
        "{" * 50 + "}" * 50,
        "{'tool': 'add', 'arguments': " + "(" * 200 + ")" * 200 + "}",
        '{"tool": "add", "arguments": {"a": 1, "b": 2}}' + " " * 250_000,
    ],
)
def test_anything_else_is_no_call(text: str) -> None:
    assert rescue_calls(text, TOOLS) == []


def test_wrong_arguments_are_found_with_what_is_wrong() -> None:
    [call] = rescue_calls('{"tool": "add", "arguments": {"a": "one", "c": 3}}', TOOLS)
    assert any("b: is missing" in problem for problem in call.problems)
    assert any("a: must be number" in problem for problem in call.problems)
    assert any("c: is not a known field" in problem for problem in call.problems)
    [broken] = rescue_calls('{"tool": "add", "arguments": "not json"}', TOOLS)
    assert broken.problems == ("the arguments are no JSON object",)


def test_bare_arguments_count_for_the_one_tool_that_was_demanded() -> None:
    assert rescue_calls('{"a": 1, "b": 2}', TOOLS) == []
    assert rescue_calls('{"a": 1, "b": 2}', (ADD,), only="add")[0].arguments == WANTED
    assert rescue_calls('{"a": 1}', (ADD,), only="add") == []


@pytest.mark.parametrize(
    ("start", "maybe"),
    [
        ("", True),
        ("  ", True),
        ("{", True),
        ("``", True),
        ("<tool", True),
        ('{ "name', True),
        ("[ {", True),
        ("```json\n", True),
        ("```\n[{", True),
        ("Hello", False),
        ("[1] A note", False),
        ("{x | x > 0}", False),
        ("```python\nprint", False),
        ("<p>", False),
    ],
)
def test_text_is_held_back_only_while_it_may_be_a_call(start: str, maybe: bool) -> None:
    assert looks_like_call(start) is maybe


def test_what_was_thought_aloud_before_a_call_is_passed_over() -> None:
    text = '<think>Shall I {add}? Yes.</think>\n{"name": "add", "arguments": {"a": 1, "b": 2}}'
    assert rescue_calls(text, TOOLS, whole=True)[0].arguments == WANTED
