"""What the offline model does with a request: a pure function, from request to answer."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from holdfast.canonical import JsonObject
from holdfast.messages import ToolSpec
from holdfast.providers.json_schema import fits, resolve
from holdfast.providers.lazy_patterns import compile_on_use
from holdfast.providers.model import ModelRequest
from holdfast.providers.offline.arithmetic import render
from holdfast.providers.offline.conversation import OfflineConversation, read_conversation
from holdfast.providers.offline.facts import quote
from holdfast.providers.offline.instance import (
    CannotFill,
    KnownFacts,
    PlanStep,
    build,
    has_evidence,
    is_plan_schema,
    is_verdict_schema,
)
from holdfast.providers.offline.intent import GoalIntent, read_intent
from holdfast.providers.offline.loop import DESCRIBE, plan_workspace_steps, review
from holdfast.providers.offline.outline import is_known_work
from holdfast.providers.offline.planner import choose_next_look, plan_steps, plan_text
from holdfast.providers.offline.sums import choose_next_sum_move
from holdfast.providers.offline.toolbox import OfflineCall, Toolbox, as_number
from holdfast.providers.offline.workspace import (
    ENTRY_POINTS,
    choose_next_move,
    merge_listings,
    select_telling_files,
)

MAX_ROUNDS = 16
"""Tool rounds after one goal; whatever happens, the next answer is a text."""

HOW_TO_CONFIGURE = """To use a language model, do one of these and try again:

- set `OPENAI_API_KEY` or `ANTHROPIC_API_KEY`
- set `OPENAI_BASE_URL` to any OpenAI-compatible server
- start LM Studio, Ollama or llama.cpp on this machine; it is found by itself
- name a model: `--model ollama:qwen3`, `--model gguf:/path/to/model.gguf`, or AGENT_MODEL
- `holdfast providers add` for anything else"""

_ABILITIES = """I am Holdfast's built-in offline model: I follow fixed rules and am no language \
model. I can describe the workspace, find a text or a definition in it, show a file, and have a \
calculator tool do a sum, when the tools for that are offered; and I can outline a plan."""

_FAILURE_SIGNS = compile_on_use(
    r"\btraceback\b|\bfailed\b|\bfailure\b|\berror\b|exit code:? [1-9]|\bdenied\b|\btimed? ?out\b",
    re.IGNORECASE,
)
_WANTS_PLAN = compile_on_use(
    r"\b(?:return|respond|reply|answer|produce|output|write|create|make|give|draft|devise|submit)"
    r"\b[^.\n]{0,60}\bplan\b|\byou are (?:a|the) planner\b|\bplanning agent\b",
    re.IGNORECASE,
)
_IS_PLANNER = compile_on_use(r"\byou plan\b|\byou are (?:a|the) planner\b|\bplanning agent\b", re.I)
_ENDS = compile_on_use(
    r"(?:^|_)(?:final|submit|answer|respond|output|finish|complete|result|plan|report)", re.I
)
_VERDICT_REASON = (
    "Decided by a fixed rule of the offline model, from whether the text that it was shown "
    "reports a failure. The content itself was not judged."
)


class OfflineAnswer(NamedTuple):
    """What the model says: calls, or a text."""

    calls: tuple[OfflineCall, ...] = ()
    text: str = ""
    not_done: str = ""
    """Why nothing of what was asked was done, if so: all that was tried has failed."""


def decide(request: ModelRequest) -> OfflineAnswer:
    """Return the answer to a request; equal requests get equal answers.

    At most `MAX_ROUNDS` rounds of tool calls follow one goal. Only a person's message can
    be a goal; texts in tool results are quoted at most.
    """
    conversation = read_conversation(request)
    intent = _read_intent(request, conversation)
    may_call = request.tool_choice != "none" and conversation.rounds < MAX_ROUNDS
    if request.output_schema is not None and (
        is_plan_schema(request.output_schema) or is_verdict_schema(request.output_schema)
    ):
        if request.tool_choice in {"auto", "none"}:
            looks = _look_first(request, intent, conversation) if may_call else ()
            if looks:
                return OfflineAnswer(calls=looks)
            return _answer_form(request, intent, conversation)
    box = Toolbox(request.tools)
    calls, text, result = _choose_natural(intent, conversation, box, request)
    if may_call and request.tool_choice != "auto":
        forced = _choose_forced(request, intent, conversation, box, calls, text)
        if forced is not None:
            return OfflineAnswer(calls=(forced,))
    elif may_call and calls:
        return OfflineAnswer(calls=calls)
    if calls:
        text = _explain_stop(intent, conversation, box)
    if request.output_schema is not None:
        return _answer_structured(
            request.output_schema, _find_known(intent, conversation, box, text, result)
        )
    return OfflineAnswer(text=text, not_done=_find_failure(intent, conversation))


def _find_failure(intent: GoalIntent, conversation: OfflineConversation) -> str:
    """Return why every look at the workspace failed; empty if one did not, or none was needed.

    Where a file was to be read, only the reads count: a look for files of a similar name may
    succeed, and shows nothing of what was asked for.
    """
    if intent.kind in ("unknown", "plan"):
        return ""
    reads = [step for step in conversation.steps if step.tool == "read"]
    tried = reads if intent.kind == "read" and reads else conversation.steps
    failures = [step.failure for step in tried]
    return failures[-1] if failures and all(failures) else ""


def _read_intent(request: ModelRequest, conversation: OfflineConversation) -> GoalIntent:
    """Read the goal; what to one that acts is work, to a planner is a goal to plan for.

    A planner whose plan is carried out by others plans for the goal as it stands, even for
    one that asks for a plan.
    """
    intent = read_intent(conversation.asked)
    if not _IS_PLANNER.search(request.system[:20_000]):
        return intent
    if request.output_schema is not None:
        return intent._replace(kind="unknown") if intent.kind == "plan" else intent
    if intent.kind == "unknown" and is_known_work(conversation.asked):
        return GoalIntent("plan", subject=conversation.asked)
    return intent


def _look_first(
    request: ModelRequest, intent: GoalIntent, conversation: OfflineConversation
) -> tuple[OfflineCall, ...]:
    """Look at the workspace before planning for it, so that the plan names what is there."""
    box = Toolbox(request.tools)
    if intent.kind == "plan" and is_plan_schema(request.output_schema):
        return tuple(choose_next_look(intent.subject, conversation, box))
    if intent.kind != "workspace" or not has_evidence(request.output_schema):
        return ()
    listing = None if conversation.steps else box.list_call()
    return (listing,) if listing is not None else ()


def _answer_form(
    request: ModelRequest, intent: GoalIntent, conversation: OfflineConversation
) -> OfflineAnswer:
    """Fill in a plan or a verdict."""
    schema = request.output_schema or {}
    box = Toolbox(request.tools)
    known = _find_known(intent, conversation, box)
    if is_plan_schema(schema):
        listing = merge_listings(conversation, box)
        if intent.kind == "workspace" and listing.files:
            known = known._replace(
                steps=plan_workspace_steps(listing, select_telling_files(listing))
            )
        return _answer_structured(schema, known)
    judged = review(conversation)
    fields = resolve(schema, schema).get("properties", {})
    if judged is not None and set(fields) == {"verdict", "reason"}:
        value = {"verdict": judged.verdict, "reason": judged.reason}
        if fits(value, schema):
            return OfflineAnswer(text=msgspec.json.encode(value).decode())
    return _answer_structured(schema, known)


def _choose_natural(
    intent: GoalIntent, conversation: OfflineConversation, box: Toolbox, request: ModelRequest
) -> tuple[tuple[OfflineCall, ...], str, str]:
    """What the model would do if it were free: calls, or a text with its number."""
    planned = _plan_move(request, intent, conversation)
    if planned is not None:
        return planned.calls, planned.text, ""
    if intent.kind == "sum" and intent.expression is not None:
        move = choose_next_sum_move(intent.expression, conversation, box)
        return move.calls, move.text, move.result
    if intent.kind == "plan":
        looks = choose_next_look(intent.subject, conversation, box)
        return tuple(looks), "" if looks else plan_text(intent.subject, conversation, box), ""
    if intent.kind != "unknown":
        able = [box.has(role) for role in ("list", "glob", "read", "grep")]
        if not any(able) and not conversation.steps:
            return (), _explain_no_tools(intent), ""
        step = choose_next_move(intent, conversation, box)
        return (tuple(step), "", "") if isinstance(step, list) else ((), step, "")
    return (), _explain_cannot(conversation), ""


def _plan_move(
    request: ModelRequest, intent: GoalIntent, conversation: OfflineConversation
) -> OfflineAnswer | None:
    """A plan, when the system text asks for one and there is a way to hand it over."""
    if not _WANTS_PLAN.search(request.system[:20_000]) or request.output_schema is not None:
        return None
    known = _find_known(intent, conversation, Toolbox(request.tools))._replace(is_plan=True)
    for spec in request.tools:
        if is_plan_schema(spec.parameters):
            if any(step.tool == spec.name for step in conversation.steps):
                return OfflineAnswer(text="The plan was handed over with the tool.")
            try:
                return OfflineAnswer(calls=(OfflineCall(spec.name, build(spec.parameters, known)),))
            except CannotFill:
                continue
    if request.tools:
        return None
    if re.search(r"\bjson\b", request.system, re.I):
        steps = [
            {
                "id": f"step-{at + 1}",
                "title": step.title,
                "description": step.detail,
                "depends_on": [f"step-{at}"] if at else [],
            }
            for at, step in enumerate(known.steps)
        ]
        plan = {"goal": known.goal, "steps": steps}
        return OfflineAnswer(text=msgspec.json.encode(plan).decode())
    listed = [f"{at + 1}. {step.title}: {step.detail}" for at, step in enumerate(known.steps)]
    return OfflineAnswer(text="\n".join(listed))


def _find_known(
    intent: GoalIntent,
    conversation: OfflineConversation,
    box: Toolbox,
    text: str = "",
    result: str = "",
) -> KnownFacts:
    failed = any(step.failure for step in conversation.steps)
    return KnownFacts(
        goal=conversation.asked,
        answer=text,
        number=as_number(result) if result else None,
        steps=_plan_steps(intent, conversation, box),
        is_positive=not failed and not _FAILURE_SIGNS.search(conversation.goal),
    )


def _plan_steps(
    intent: GoalIntent, conversation: OfflineConversation, box: Toolbox
) -> tuple[PlanStep, ...]:
    if intent.kind == "plan" and intent.subject:
        return plan_steps(intent.subject, conversation, box)
    if intent.kind == "workspace":
        return (
            PlanStep("List the files", "List the files of this workspace.", "list"),
            PlanStep(
                "Describe the workspace",
                DESCRIBE,
                "read",
            ),
        )
    if intent.kind == "sum" and intent.expression is not None:
        return (PlanStep("Calculate", f"Calculate {render(intent.expression)}"),)
    short = quote(conversation.asked, 80) or "No goal was given"
    return (PlanStep(short, quote(conversation.asked, 2_000) or short),)


def _answer_structured(schema: JsonObject, known: KnownFacts) -> OfflineAnswer:
    if is_plan_schema(schema):
        known = known._replace(is_plan=True)
    elif is_verdict_schema(schema):
        known = known._replace(reason=_VERDICT_REASON)
    try:
        return OfflineAnswer(text=msgspec.json.encode(build(schema, known)).decode())
    except CannotFill as missing:
        return OfflineAnswer(
            text=f"I cannot give an answer of the asked form: nothing that I know fits "
            f"`{quote(missing.path, 200)}`, and I do not make things up.\n\n{_ABILITIES}\n\n"
            f"{HOW_TO_CONFIGURE}"
        )


def _choose_forced(
    request: ModelRequest,
    intent: GoalIntent,
    conversation: OfflineConversation,
    box: Toolbox,
    calls: tuple[OfflineCall, ...],
    text: str,
) -> OfflineCall | None:
    """A call because one is demanded; None when none can be filled in honestly."""
    choice = request.tool_choice
    if choice == "required":
        if calls:
            return calls[0]
        # A tool of unknown effect is not called just because something must be.
        allowed = [tool for tool in request.tools if _ENDS.search(tool.name)]
        allowed += [tool for tool in request.tools if box.find_role(tool.name) == "list"]
    else:
        allowed = [tool for tool in request.tools if tool.name == choice]
        for call in calls:
            if call.tool == choice:
                return call
    known = _find_known(intent, conversation, box, text)
    for tool in allowed:
        found = _choose_by_role(tool, intent, conversation, box) or _choose_by_schema(tool, known)
        if found is not None:
            return found
    return None


def _choose_by_role(
    tool: ToolSpec, intent: GoalIntent, conversation: OfflineConversation, box: Toolbox
) -> OfflineCall | None:
    role = box.find_role(tool.name)
    if role == "list":
        return box.list_call()
    if role == "glob":
        return box.glob_call("**/*")
    if role == "grep":
        return box.grep_call(intent.pattern or ENTRY_POINTS)
    if role == "read":
        telling = select_telling_files(merge_listings(conversation, box)) or ["README.md"]
        return box.read_call(intent.subject if intent.kind == "read" else telling[0])
    return None


def _choose_by_schema(tool: ToolSpec, known: KnownFacts) -> OfflineCall | None:
    try:
        filled = build(tool.parameters, known._replace(is_plan=is_plan_schema(tool.parameters)))
    except CannotFill:
        return None
    return OfflineCall(tool.name, filled) if isinstance(filled, dict) else None


def _explain_stop(intent: GoalIntent, conversation: OfflineConversation, box: Toolbox) -> str:
    """The answer from what is known so far, when no further call may be made."""
    if intent.kind == "plan":
        return plan_text(intent.subject, conversation, box)
    told = "\n".join(
        f"- `{step.tool}`: {quote(step.failure or step.output, 300)}" for step in conversation.steps
    )
    start = f"I would go on with a tool call for this ({intent.kind}), but none may be made now."
    return f"{start}\n\nSo far:\n{told}" if told else start


def _explain_no_tools(intent: GoalIntent) -> str:
    needed = {"search": "grep", "read": "read"}.get(intent.kind, "list, read and grep")
    return (
        f"I cannot look: this needs the tools {needed}, and none of them is offered.\n\n"
        f"{HOW_TO_CONFIGURE}"
    )


def _explain_cannot(conversation: OfflineConversation) -> str:
    asked = quote(conversation.asked, 200)
    start = f"I cannot do this: {asked}" if asked else "No goal was given."
    failed = [
        f"- `{step.tool}` failed: {quote(step.failure, 200)}"
        for step in conversation.steps
        if step.failure
    ]
    return "\n\n".join(
        [start, _ABILITIES, *(["\n".join(failed)] if failed else []), HOW_TO_CONFIGURE]
    )
