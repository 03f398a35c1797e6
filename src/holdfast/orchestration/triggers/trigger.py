"""A trigger: on what it fires, and what it then starts."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from holdfast.canonical import JsonObject
from holdfast.errors import ExpressionInvalid, TriggerInvalid
from holdfast.journal import SYSTEM_SESSION
from holdfast.orchestration.triggers.cron import check_schedule
from holdfast.orchestration.workflows.definition import WorkflowName
from holdfast.orchestration.workflows.expressions import (
    Names,
    is_true,
    list_expressions,
    list_references,
    parse,
    strip_quotes,
)
from holdfast.policy import OnAsk

Missed: TypeAlias = Literal["skip", "once", "all"]
_NAMES = frozenset({"event", "tick", "trigger"})


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class EventPattern(_Strict):
    """Which events: their kinds, and what else must hold.

    Kinds are exact, or globs such as `run.*`; a bare `*` means all that happens in sessions,
    what concerns the system as a whole (`policy.*`, `trigger.*`) has to be named. `where` is
    a condition on `event`; where it names a field that the event lacks, it does not hold.
    """

    kinds: tuple[str, ...] = Field(min_length=1, max_length=50, strict=False)
    where: str | None = Field(None, min_length=1, max_length=2_010)
    session: str = ""
    project: str = ""

    def wants(self, kind: str, session_id: str) -> bool:
        """Say whether an event of this kind and session may be meant."""
        if self.session not in ("", session_id):
            return False
        is_system = session_id == SYSTEM_SESSION
        return any(
            fnmatchcase(kind, pattern)
            for pattern in self.kinds
            if not (is_system and pattern == "*")
        )

    def holds(self, names: Names) -> bool:
        """Say whether the condition holds for an event."""
        if self.where is None:
            return True
        try:
            return is_true(self.where, names)
        except ExpressionInvalid:
            return False


class Timetable(_Strict):
    """When: five fields of cron in a time zone, and what becomes of missed times.

    `skip` starts nothing for them, `once` one run for all, `all` one for each, at most the
    newest `most_missed`.
    """

    cron: str = Field(min_length=1, max_length=200)
    zone: str = Field("UTC", max_length=60)
    missed: Missed = "once"
    most_missed: int = Field(10, ge=1, le=1_000)

    @model_validator(mode="after")
    def _can_be_read(self) -> Timetable:
        check_schedule(self.cron, self.zone)
        return self


class Trigger(_Strict):
    """One trigger: `on` an event or at a time (`at`), an `agent` or a `workflow`."""

    name: WorkflowName
    on: EventPattern | None = None
    at: Timetable | None = None
    agent: str | None = Field(None, min_length=1, max_length=64)
    message: str | None = Field(None, min_length=1, max_length=100_000)
    workflow: str | None = Field(None, min_length=1, max_length=1_000)
    with_: JsonObject = Field(default_factory=dict, alias="with")
    on_ask: OnAsk = "deny"

    @field_validator("message", "with_")
    @classmethod
    def _check_expressions(cls, value: Any) -> Any:  # noqa: ANN401 - a template
        _check([*list_expressions(value)])
        return value

    @model_validator(mode="after")
    def _check_fits_together(self) -> Trigger:
        if (self.on is None) == (self.at is None):
            raise ValueError("a trigger has one of `on` (events) and `at` (times)")
        if (self.agent is None) == (self.workflow is None):
            raise ValueError("a trigger starts one of `agent` and `workflow`")
        if self.agent is not None and self.message is None:
            raise ValueError("an agent needs a `message`")
        if self.agent is not None and self.with_:
            raise ValueError("`with` belongs to a workflow")
        if self.workflow is not None and self.message is not None:
            raise ValueError("`message` belongs to an agent")
        if self.on is not None and self.on.where is not None:
            _check([strip_quotes(self.on.where)])
        return self

    def to_json(self) -> JsonObject:
        """Return it as JSON, from which `read_trigger` makes it again."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _check(texts: list[str]) -> None:
    for text in texts:
        try:
            named = list_references(parse(text))
        except ExpressionInvalid as error:
            raise ValueError(str(error)) from error
        for path in named:
            if path[0] not in _NAMES:
                raise ValueError(f"{path[0]}: expressions begin with event, tick or trigger")


def read_trigger(content: Mapping[str, Any]) -> Trigger:
    """Return a trigger made of plain data.

    Raises:
        TriggerInvalid: something is wrong; all of it is named.
    """
    try:
        return Trigger.model_validate(content)
    except (ValidationError, ExpressionInvalid) as error:
        if isinstance(error, ValidationError):
            found = [
                f"{'.'.join(map(str, one['loc'])) or 'the trigger'}: {one['msg']}"
                for one in error.errors(include_url=False, include_context=False)
            ]
        else:
            found = [str(error)]
        lines = "\n".join(f"  - {one}" for one in found)
        raise TriggerInvalid(detail=lines, mistakes=found) from error


__all__ = ["EventPattern", "Missed", "Timetable", "Trigger", "read_trigger"]
