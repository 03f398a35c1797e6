"""The approval prompt: a person at the terminal consents to one call, or does not.

Everything that comes from a model or a file is made harmless before it is shown. Nothing but
an answer that is clearly a yes lets the call run.
"""

from __future__ import annotations

import getpass
import json
import threading
from collections.abc import Sequence

import click

from holdfast.canonical import JsonObject
from holdfast.cli.call_view import Line, color_diff
from holdfast.cli.output import make_printable, say
from holdfast.policy import Decision
from holdfast.sessions import PermissionRule
from holdfast.tools import ApprovalAnswer, ApprovalRequest, Question, ToolThreads

_KEYS = {
    "y": "yes, once",
    "n": "no",
    "e": "edit the arguments",
    "a": "always",
    "s": "this session",
    "q": "stop",
}
_LONGEST = 8_000
_one_at_a_time = threading.Lock()


class AskInTerminal:
    """Asks the person at the terminal; the loop goes on meanwhile.

    A run that is cancelled meanwhile waits no longer, and the open prompt keeps no person from
    ending: its thread is left behind.
    """

    def __init__(self) -> None:
        """Ask nothing yet."""
        self._threads = ToolThreads()

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Show the call and wait for a key; `None` when the terminal is gone."""
        return await self._threads.run(_ask_alone, request)

    async def ask(self, questions: Sequence[Question]) -> tuple[tuple[str, ...], ...] | None:
        """Put questions of an agent and wait for the answers; `None` when no approver is there."""
        return await self._threads.run(_list_answers, questions)


_SPECIAL = {
    "doom_loop": "it is the same call for at least the third time in a row",
    "egress": "it sends something out, after both strangers' words and private data were read",
}

ask_in_terminal = AskInTerminal()
"""Pass it as `approve=` to have calls that ask put before the person at the terminal."""


def _ask_alone(request: ApprovalRequest) -> ApprovalAnswer | None:
    with _one_at_a_time:
        try:
            return ask_here(request)
        except click.Abort:
            return None


def ask_here(request: ApprovalRequest) -> ApprovalAnswer:
    """Ask until there is an answer; a key that is not understood asks again.

    Raises:
        click.Abort: Ctrl-C, or the terminal is gone.
    """
    by = getpass.getuser()
    _show(request)
    offered = _list_offered(request)
    while True:
        key = _read_key(offered)
        if key == "y":
            return ApprovalAnswer(verdict="allow", by=by)
        if key == "n":
            reason = click.prompt(
                "Why not (for the model)", default="", show_default=False, err=True
            )
            return ApprovalAnswer(verdict="deny", by=by, reason=reason.strip())
        if key == "q":
            return ApprovalAnswer(verdict="stop", by=by, reason="the run was stopped")
        if key == "e":
            arguments = read_arguments(request.arguments)
            if arguments is not None:
                return ApprovalAnswer(verdict="allow", by=by, arguments=arguments)
        if key in ("a", "s"):
            rules = request.rules if key == "a" else _list_session_rules(request)
            show_rules(rules)
            if click.confirm("Write it and go on?", default=False, err=True):
                return ApprovalAnswer(verdict="allow", by=by, rules=rules)


def _list_answers(questions: Sequence[Question]) -> tuple[tuple[str, ...], ...] | None:
    with _one_at_a_time:
        try:
            return tuple(_answer(question) for question in questions)
        except click.Abort:
            return None


def _answer(question: Question) -> tuple[str, ...]:
    """Ask one question; numbers choose options, anything else is the answer itself."""
    lines = ["", *([question.header] if question.header else []), question.question]
    for number, option in enumerate(question.options, 1):
        lines.append(f"  {number}. {option.label}  {option.description}".rstrip())
    click.echo(make_printable("\n".join(lines)), err=True)
    hint = "Answer"
    if question.options:
        hint = "Numbers, with commas, or words" if question.is_multiple else "Number, or words"
    given = str(click.prompt(hint, default="", show_default=False, err=True)).strip()
    words = [word.strip() for word in given.split(",")] if question.is_multiple else [given]
    labels = {str(number): option.label for number, option in enumerate(question.options, 1)}
    if question.options and words and all(word in labels for word in words):
        return tuple(labels[word] for word in words)
    return (given,) if given else ()


def _show(request: ApprovalRequest) -> None:
    who = f" of {request.agent_path}" if request.agent_path else ""
    what = request.tool
    if request.permission != request.tool:
        what += f" ({request.permission})"
    reason = describe_reason(request.permission, request.decision)
    lines: list[Line] = [("", ""), (f"{what}{who} wants to run: {reason}.", "yellow")]
    command = request.arguments.get("command")
    if request.targets != (command,):
        lines.append((f"It touches: {', '.join(request.targets)}", ""))
    if request.required > 1:
        lines.append((f"{request.required} different people have to consent.", ""))
    shown = request.preview or _as_json(request.arguments)
    if isinstance(command, str) and len(request.arguments) == 1 and not request.preview:
        shown = f"$ {command}"
    lines += color_diff(shown[:_LONGEST])
    if len(shown) > _LONGEST:
        left_out = len(shown) - _LONGEST
        lines.append((f"({left_out} more characters are not shown; e shows all of it)", ""))
    for text, colour in lines:
        say(text, err=True, color=colour)


def describe_reason(permission: str, decision: Decision) -> str:
    """Say why an approver is asked: what is special about the call, and which rule was decisive."""
    rule = decision.explain() if decision.because else ""
    return "; ".join(text for text in (_SPECIAL.get(permission, ""), rule) if text)


def _list_offered(request: ApprovalRequest) -> dict[str, str]:
    keys = dict(_KEYS)
    if not request.rules:
        del keys["a"]
    if request.required > 1:
        del keys["s"]
    return keys


def _read_key(offered: dict[str, str]) -> str:
    shown = ", ".join(f"{key} {meaning}" for key, meaning in offered.items())
    answer = click.prompt(f"[{shown}]", default="", show_default=False, err=True)
    given = str(answer).strip().lower()
    given = {"yes": "y", "no": "n"}.get(given, given)
    return given if given in offered else ""


def _list_session_rules(request: ApprovalRequest) -> tuple[PermissionRule, ...]:
    return (PermissionRule(permission=request.permission, pattern="*", action="allow"),)


def show_rules(rules: Sequence[PermissionRule]) -> None:
    """Show what would be written into the session."""
    for rule in rules:
        click.echo(
            make_printable(f"rule: {rule.permission} {rule.pattern} {rule.action}"), err=True
        )


def read_arguments(arguments: JsonObject) -> JsonObject | None:
    """Let the person change arguments in their editor; `None` when they left them alone."""
    text = click.edit(_as_json(arguments), extension=".json")
    if text is None:
        click.echo("Nothing was changed.", err=True)
        return None
    try:
        return parse_arguments(text)
    except ValueError as error:
        click.echo(make_printable(f"That is no JSON object: {error}"), err=True)
        return None


def parse_arguments(text: str) -> JsonObject:
    """Return a JSON object.

    Raises:
        ValueError: the text is something else.
    """
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return value


def _as_json(arguments: JsonObject) -> str:
    return json.dumps(arguments, indent=2, ensure_ascii=False)
