"""The `question` tool: ask the person who attends the run."""

from __future__ import annotations

from typing import Annotated

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from holdfast.errors import ToolError
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import tool
from holdfast.tools.result import Parked, ToolResult
from holdfast.tools.services import Option, Question


class AskedOption(BaseModel):
    """One choice."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str = Field(min_length=1, max_length=200)
    description: str = Field(default="", max_length=1_000)


class AskedQuestion(BaseModel):
    """One question; without options the answer is free text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: str = Field(min_length=1, max_length=4_000)
    header: str = Field(default="", max_length=60, description="A word or two above it")
    options: list[AskedOption] = Field(default=[], max_length=20)
    multiple: bool = Field(default=False, description="More than one option may be chosen")


@tool(effect="idempotent", tags=("people",), timeout_s=24 * 3600)
async def question(
    questions: Annotated[list[AskedQuestion], Field(min_length=1, max_length=10)],
    context: ToolContext,
) -> ToolResult | Parked:
    """Ask the person some questions and wait for the answers.

    Ask only what you cannot find out yourself. If no approver attends the run, it waits
    until an approver answers.
    """
    asked = tuple(_simplify(one) for one in questions)
    answers = await context.attendant.ask(asked)
    if answers is None:
        return Parked(reason="question", request={"questions": msgspec.to_builtins(asked)})
    return make_answered_result(asked, answers)


def make_answered_result(
    asked: tuple[Question, ...], answers: tuple[tuple[str, ...], ...]
) -> ToolResult:
    """Make the result of answers, now or when a parked call is answered.

    Raises:
        ToolError: there is not one answer per question.
    """
    if len(answers) != len(asked):
        raise ToolError(
            tool="question", detail=f"{len(answers)} answers came to {len(asked)} questions"
        )
    lines = [
        f"{one.question}\n  {', '.join(given) or '(no answer)'}"
        for one, given in zip(asked, answers, strict=True)
    ]
    return ToolResult(
        "\n".join(lines),
        title=asked[0].header or asked[0].question[:60],
        metadata={"answers": [list(given) for given in answers]},
    )


def _simplify(one: AskedQuestion) -> Question:
    return Question(
        question=one.question,
        header=one.header,
        options=tuple(
            Option(label=option.label, description=option.description) for option in one.options
        ),
        is_multiple=one.multiple,
    )
