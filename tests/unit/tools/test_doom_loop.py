"""The same tool with the same input, again and again."""

from __future__ import annotations

from run_kit import open_run

from holdfast.messages import ToolPart
from holdfast.tools import tool
from holdfast.tools.gate import ApprovalAnswer, DoomLoop, Gate


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Asked:
    """Answers yes or no, and remembers what for."""

    def __init__(self, verdict):
        self.verdict = verdict
        self.permissions = []

    async def approve(self, request):
        self.permissions.append((request.permission, request.tool))
        return ApprovalAnswer(verdict=self.verdict, by="tester")


def test_the_third_equal_call_in_a_row_is_noticed():
    doom = DoomLoop()
    assert [doom.count_and_check("t", {"a": 1}) for _ in range(4)] == [False, False, True, True]


def test_another_input_or_tool_starts_anew_and_the_order_of_keys_does_not_matter():
    doom = DoomLoop()
    calls = [
        ("t", {"a": 1, "b": 2}),
        ("t", {"b": 2, "a": 1}),
        ("t", {"a": 2, "b": 2}),
        ("u", {"a": 2, "b": 2}),
        ("t", {"a": 1, "b": 2}),
    ]
    assert not any(doom.count_and_check(*call) for call in calls)


def test_a_number_is_neither_true_nor_a_fraction():
    doom = DoomLoop()
    assert not any(doom.count_and_check("t", {"a": value}) for value in (1, True, 1.0))


async def test_repeating_asks_and_a_yes_lasts_for_the_next_ones(tmp_path):
    asked = Asked("allow")
    async with open_run(tmp_path, add, gate=Gate(approver=asked)) as run:
        for _ in range(5):
            assert (await run.call("add", a=1, b=1)).output == "2"
        assert asked.permissions == [("doom_loop", "add")]


async def test_a_no_refuses_every_further_equal_call(tmp_path):
    asked = Asked("deny")
    async with open_run(tmp_path, add, gate=Gate(approver=asked)) as run:
        states = [(await run.call("add", a=1, b=1)).state for _ in range(4)]
        assert states == ["completed", "completed", "error", "error"]
        assert (await run.call("add", a=1, b=2)).state == "completed"
        assert (await run.call("add", a=1, b=1)).state == "completed"
    assert asked.permissions == [("doom_loop", "add")] * 2


async def test_equal_calls_of_one_answer_count_too(tmp_path):
    asked = Asked("deny")
    async with open_run(tmp_path, add, gate=Gate(approver=asked)) as run:
        same = ToolPart(call_id="", tool="add", input={"a": 1, "b": 1})
        results = await run.call_all(same, same, same)
    assert sorted(part.state for part in results) == ["completed", "completed", "error"]
