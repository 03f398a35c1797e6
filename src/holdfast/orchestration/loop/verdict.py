"""What a reviewer says about a step: one of four words and a reason, never prose to be read."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

Decision: TypeAlias = Literal["accept", "retry", "replan", "give_up"]


class Verdict(BaseModel):
    """The reviewer's answer; its form is enforced, so that nothing has to be guessed."""

    model_config = ConfigDict(extra="forbid")

    verdict: Decision = Field(
        description="accept: the step is done. retry: the same step once more, better. replan: "
        "the plan itself is wrong. give_up: the goal cannot be reached."
    )
    reason: str = Field(description="Why; for retry, what exactly to do better")
