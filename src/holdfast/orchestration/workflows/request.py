"""Order: everything a run of a workflow needs to know, kept with the run.

A workflow that was killed goes on as it was begun, also when its file has changed since.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from pydantic import ValidationError

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError, WorkflowInvalid
from holdfast.orchestration.workflows import schema
from holdfast.orchestration.workflows.definition import Definition
from holdfast.policy import NO_BUDGET, Budget, OnAsk
from holdfast.redaction import Redactor, list_withheld


@dataclass(frozen=True, kw_only=True)
class WorkflowRequest:
    """A workflow, the workflows it starts, its inputs, and what becomes of open questions."""

    definition: Definition
    inputs: JsonObject = field(default_factory=dict)
    called: dict[str, Definition] = field(default_factory=dict)
    on_ask: OnAsk = "deny"
    budget: Budget = NO_BUDGET

    def to_options(self) -> JsonObject:
        """Return it as the options of a queued run."""
        return {
            "workflow": self.definition.to_json(),
            "called": {name: one.to_json() for name, one in self.called.items()},
            "inputs": self.inputs,
            "on_ask": self.on_ask,
            "budget": msgspec.to_builtins(self.budget),
        }

    def check(self) -> None:
        """Return if it can be kept; raises WorkflowInvalid for values that have no JSON form."""
        try:
            msgspec.json.encode(self.to_options())
        except (TypeError, ValueError, RecursionError) as error:
            wrong = f"a value in it, or an input, has no JSON form: {error}"
            raise WorkflowInvalid(detail=f"  - {wrong}", mistakes=[wrong]) from error

    def check_kept(self, redactor: Redactor) -> None:
        """Return if the journal keeps it as it is, since what is kept is what runs.

        Raises:
            WorkflowInvalid: it holds secrets, whose place markers would take.
        """
        given = self.to_options()
        marked = set(list_withheld(given))
        lost = [place for place in list_withheld(redactor.value(given)) if place not in marked]
        if lost:
            wrong = [
                f"{place} holds a secret, and secrets are not kept; let the tool that needs it "
                "read it from its variable or its file"
                for place in lost
            ]
            raise WorkflowInvalid(detail="\n".join(f"  - {one}" for one in wrong), mistakes=wrong)

    @classmethod
    def of(cls, options: JsonObject) -> WorkflowRequest:
        """Read it from the options of a queued run.

        Raises:
            UsageError: the run is none of a workflow, or its content was removed.
        """
        try:
            return cls(
                definition=Definition.model_validate(options["workflow"]),
                called={
                    name: Definition.model_validate(one) for name, one in options["called"].items()
                },
                inputs=options["inputs"],
                on_ask="park" if options["on_ask"] == "park" else "deny",
                budget=msgspec.convert(options.get("budget", {}), Budget),
            )
        except (KeyError, ValidationError, msgspec.ValidationError) as error:
            raise UsageError(detail=f"This run is none of a workflow: {error}") from error

    def inner(self, name: str, inputs: JsonObject, budget: Budget = NO_BUDGET) -> WorkflowRequest:
        """Return the order of a workflow that this one starts, with a budget of its own.

        Raises:
            WorkflowInvalid: the inputs do not fit it.
        """
        definition = self.called[name]
        return WorkflowRequest(
            definition=definition,
            inputs=fit_inputs(definition, inputs),
            called=self.called,
            on_ask=self.on_ask,
            budget=budget,
        )


def fit_inputs(definition: Definition, given: JsonObject) -> JsonObject:
    """Return the inputs with their defaults.

    Raises:
        WorkflowInvalid: one is missing, unknown, or of another type.
    """
    wrong = [f"there is no input {name[:80]!r}" for name in given if name not in definition.inputs]
    inputs: JsonObject = {}
    for name, described in definition.inputs.items():
        if name in given:
            inputs[name] = given[name]
            wrong += schema.list_mistakes(given[name], described, f"the input {name!r}")
        elif "default" in described:
            inputs[name] = described["default"]
        else:
            wrong.append(f"the input {name!r} is missing")
    if wrong:
        lines = "\n".join(f"  - {text}" for text in wrong)
        raise WorkflowInvalid(detail=lines, mistakes=wrong)
    return inputs


__all__ = ["WorkflowRequest", "fit_inputs"]
