"""A crew for tests: one model that plans, works and reviews as a test tells it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from holdfast import Agent
from holdfast.orchestration.loop import LoopAgents, LoopSetup
from holdfast.providers.model import ModelRequest
from holdfast.testing import FunctionModel

Plan = list[dict[str, object]]


def step(name: str, *after: str, checks: Sequence[dict[str, object]] = (), **more: object) -> dict:
    wanted = list(checks) or [{"kind": "answer_contains", "text": name}]
    return {
        "id": name,
        "title": f"Do {name}",
        "instruction": f"Do {name}.",
        "depends_on": list(after),
        "checks": wanted,
        **more,
    }


def verdict(word: str, reason: str = "because") -> str:
    return json.dumps({"verdict": word, "reason": reason})


def role_of(request: ModelRequest) -> str:
    names = (request.output_schema or {}).get("properties", {})
    return "planner" if "steps" in names else "reviewer" if "verdict" in names else "executor"


def asked(request: ModelRequest) -> str:
    return [message for message in request.messages if message.role == "user"][-1].text


def crew_model(
    plan: Plan | Callable[[str], object],
    work: Callable[[ModelRequest], object] = lambda request: f"I did it: {asked(request)[:60]}",
    review: Callable[[str], str] = lambda message: verdict("accept"),
) -> FunctionModel:
    """Return a model that plays all three, told apart by the form that is asked for."""

    def answer(request: ModelRequest):
        role = role_of(request)
        if role == "planner":
            made = plan(asked(request)) if callable(plan) else plan
            return made if isinstance(made, str) else json.dumps({"steps": made})
        if role == "reviewer":
            return review(asked(request))
        return work(request)

    return FunctionModel(answer)


def options(
    model: FunctionModel, *, rules: Sequence[dict[str, str]] = (), **more: object
) -> LoopSetup:
    """Return options whose three agents are this model."""
    allowed = list(rules) or [{"permission": "*", "action": "allow"}]
    return LoopSetup(
        agents=LoopAgents(
            planner=Agent("planner", model=model, allowed_tools=["read"]),
            executor=Agent("executor", model=model, permission=allowed),
            reviewer=Agent("reviewer", model=model, allowed_tools=["read"]),
        ),
        **more,
    )
