"""Work through a sum, one tool call at a time."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.canonical import encode_canonical_json
from holdfast.providers.offline.arithmetic import (
    Binary,
    Expression,
    Number,
    list_operations,
    render,
)
from holdfast.providers.offline.conversation import OfflineConversation, OfflineStep
from holdfast.providers.offline.facts import quote
from holdfast.providers.offline.toolbox import (
    OfflineCall,
    Toolbox,
    make_expression_call,
    make_operation_call,
    read_number,
)


class SumMove(NamedTuple):
    """The next call, or the answer; `result` is the number when a tool gave it."""

    calls: tuple[OfflineCall, ...] = ()
    text: str = ""
    result: str = ""


def choose_next_sum_move(
    expression: Expression, conversation: OfflineConversation, box: Toolbox
) -> SumMove:
    """Return the next call for a sum, or the answer as the tools gave it.

    Nothing is computed here. The number of calls is at most the number of operations.
    """
    written = render(expression)
    whole = make_expression_call(box.tools, expression)
    if whole is not None:
        made = _find(conversation, whole)
        if made is None:
            return SumMove(calls=(whole,))
        return _answer(written, made)
    if not isinstance(expression, Binary):
        return SumMove(text=written, result=written)
    results: dict[int, Number] = {}
    last: OfflineStep | None = None
    for operation in list_operations(expression):
        step = Binary(
            operation.operation,
            results.get(id(operation.left), operation.left),
            results.get(id(operation.right), operation.right),
        )
        call = make_operation_call(box.tools, step)
        if call is None:
            return SumMove(text=_explain_no_tool(written, step))
        last = _find(conversation, call)
        if last is None:
            return SumMove(calls=(call,))
        number = None if last.failure else read_number(last.output)
        if number is None:
            return _answer(written, last)
        results[id(operation)] = Number(number)
    return _answer(written, last) if last is not None else SumMove(text=written)


def _answer(written: str, step: OfflineStep) -> SumMove:
    if step.failure:
        return SumMove(
            text=f"I could not compute {written}: the tool `{step.tool}` failed: "
            f"{quote(step.failure, 300)}"
        )
    number = read_number(step.output)
    if number is None:
        return SumMove(
            text=f"I asked `{step.tool}` for {written}; it answered without a number: "
            f"{quote(step.output, 300)}"
        )
    return SumMove(text=f"{written} = {number}", result=number)


def _explain_no_tool(written: str, step: Binary) -> str:
    return (
        f"I cannot compute {written}: I do no sums myself, and no offered tool can "
        f"{step.operation} two numbers. A tool with the fields `operation`, `a` and `b`, or one "
        "with the field `expression`, would do."
    )


def _find(conversation: OfflineConversation, call: OfflineCall) -> OfflineStep | None:
    wanted = encode_canonical_json(call.arguments)
    for step in conversation.steps:
        if step.tool == call.tool and encode_canonical_json(step.input) == wanted:
            return step
    return None
