from __future__ import annotations

import ast
import operator

import pytest
from offline_kit import CALCULATOR, Drive, ask, calculate, spec, user

from holdfast.canonical import JsonObject
from holdfast.providers.model import ModelRequest
from holdfast.providers.offline.arithmetic import find_expression, render

NUMBER: JsonObject = {"type": "number"}


@pytest.mark.parametrize(
    ("goal", "written"),
    [
        ("What is 15 times 23?", "15 * 23"),
        ("15*23", "15 * 23"),
        ("15 x 23 =", "15 * 23"),
        ("fifteen times twenty-three", "15 * 23"),
        ("calculate (2 + 3.5) * 4", "(2 + 3.5) * 4"),
        ("20% of 150", "20 / 100 * 150"),
        ("what's 15 percent of 80?", "15 / 100 * 80"),
        ("1,000 + 2", "1000 + 2"),
        ("7 - -2", "7 - (-2)"),
        ("-2 ** 2", "0 - 2 ** 2"),
        ("1 - (2 - 3)", "1 - (2 - 3)"),
        ("2 ^ 3 ^ 2", "2 ** 3 ** 2"),
        ("10 % 3", "10 % 3"),
        ("subtract 3 from 10", "10 - 3"),
        ("What is the sum of 3 and 4?", "3 + 4"),
        ("multiply 15 by 23 please", "15 * 23"),
        ("Use the calculator tool to compute 12 / 4", "12 / 4"),
    ],
)
def test_sums_are_found_in_words_and_signs(goal: str, written: str) -> None:
    found = find_expression(goal)
    assert found is not None
    assert render(found) == written


@pytest.mark.parametrize(
    "goal",
    ["Describe this workspace", "Fix bug 15 - 23 in the parser", "What is 5?", "(", "", "1 +",
     "2 + 2 and 3 + 3", "show lines 3 - 7 of main.py", "1" + "+1" * 40, "(" * 500 + "1"],
)  # fmt: skip
def test_other_sentences_are_no_sums(goal: str) -> None:
    assert find_expression(goal) is None


async def test_the_tool_is_called_and_its_result_is_the_answer() -> None:
    drive = Drive(calculate, (CALCULATOR,))
    message = await drive.answer("What is 15 times 23?")
    assert drive.calls == [("calculator", {"operation": "multiply", "a": 15, "b": 23})]
    assert message.text == "15 * 23 = 345"


async def test_a_longer_sum_takes_one_call_per_operation() -> None:
    drive = Drive(calculate, (CALCULATOR,))
    message = await drive.answer("calculate (2 + 3) * 4 - 20% of 50")
    assert message.text == "(2 + 3) * 4 - 20 / 100 * 50 = 10"
    assert len(drive.calls) == 5


async def test_the_result_is_what_the_tool_says_even_if_it_is_wrong() -> None:
    drive = Drive(lambda tool, given: "The result is 999.", (CALCULATOR,))
    assert (await drive.answer("What is 15 times 23?")).text == "15 * 23 = 999"


OPERATORS = {ast.Mult: operator.mul, ast.Add: operator.add}


def evaluate(tool: str, given: JsonObject) -> str:
    tree = ast.parse(next(iter(given.values())), mode="eval").body
    assert isinstance(tree, ast.BinOp)
    done = OPERATORS[type(tree.op)](ast.literal_eval(tree.left), ast.literal_eval(tree.right))
    return f'{{"result": {done}}}'


async def test_a_tool_that_takes_an_expression_gets_the_whole_one() -> None:
    tool = spec(
        "evaluate", "Evaluate an expression", required="expression", expression={"type": "string"}
    )
    drive = Drive(evaluate, (tool,))
    assert (await drive.answer("What is 15 times 23?")).text == "15 * 23 = 345"
    assert drive.calls == [("evaluate", {"expression": "15 * 23"})]


async def test_a_tool_for_one_operation_is_found_by_its_name() -> None:
    tools = (
        spec("add", required="x y", x=NUMBER, y=NUMBER),
        spec("multiply_numbers", required="x y", x=NUMBER, y=NUMBER),
    )
    drive = Drive(lambda tool, given: str(given["x"] * given["y"]), tools)
    assert (await drive.answer("What is 15 times 23?")).text == "15 * 23 = 345"
    assert drive.calls == [("multiply_numbers", {"x": 15, "y": 23})]


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("search_history", "Search what a summary stands for."),
        ("find", "Search by a regular expression."),
        ("compute_units", "List the compute units of a cluster."),
    ],
)
async def test_a_search_is_not_mistaken_for_a_calculator(name: str, about: str) -> None:
    search = spec(name, about, required="query", query={"type": "string"})
    drive = Drive(lambda tool, given: "23 found", (search,))
    assert "I do no sums myself" in (await drive.answer("What is 15 times 23?")).text
    assert drive.calls == []


async def test_a_calculator_may_call_its_field_anything() -> None:
    tool = spec("CalculateSum", "", required="query", query={"type": "string"})
    drive = Drive(evaluate, (tool,))
    assert (await drive.answer("What is 15 times 23?")).text == "15 * 23 = 345"


async def test_nothing_is_computed_without_a_tool() -> None:
    text = (await ask(ModelRequest(messages=(user("What is 15 times 23?"),)))).text
    assert "345" not in text
    assert "I do no sums myself" in text
    assert "`operation`" in text


async def test_a_tool_that_lacks_the_operation_is_not_misused() -> None:
    drive = Drive(calculate, (CALCULATOR,))
    text = (await drive.answer("2 ** 8")).text
    assert drive.calls == []
    assert "power" in text


async def test_a_failing_tool_is_reported() -> None:
    def fail(tool: str, given: JsonObject) -> str:
        raise ZeroDivisionError("division by zero")

    drive = Drive(fail, (CALCULATOR,))
    text = (await drive.answer("What is 1 / 0?")).text
    assert "division by zero" in text
    assert len(drive.calls) == 1


async def test_an_answer_without_a_number_is_quoted() -> None:
    drive = Drive(lambda tool, given: "I am tired", (CALCULATOR,))
    assert "I am tired" in (await drive.answer("What is 1 + 1?")).text


async def test_a_number_too_large_for_json_is_not_sent() -> None:
    drive = Drive(calculate, (CALCULATOR,))
    text = (await drive.answer(f"What is {'9' * 400} + 1?")).text
    assert drive.calls == []
    assert "cannot compute" in text
