"""Slash commands of a chat."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import click

from holdfast.cli.chat_history import show_history
from holdfast.cli.frame import Invocation
from holdfast.cli.output import emit, make_printable, say
from holdfast.cli.times import format_age
from holdfast.context import compute_room
from holdfast.errors import HoldfastError, NotFound, UsageError
from holdfast.sessions import Session, SessionFilter
from holdfast.sync import Client

_PLANNER: Final = "plan"


@dataclass
class ChatState:
    """Where a chat stands: its session, and who answers with which model."""

    client: Client
    invocation: Invocation
    agent: str = ""
    model: str = ""
    session_id: str = ""
    cost_usd: float = 0.0
    tokens: int = 0
    is_over: bool = False
    marks: list[tuple[str, int]] = field(default_factory=list)
    """Where each message of this chat begins: the session, and its last event before."""
    attach: Callable[[str], bool] = lambda path: False
    """Puts a file before the model; says whether it could be read."""

    def session(self) -> str:
        """Return the session, made now if nothing was said yet."""
        if not self.session_id:
            workspace = self.client.settings.workspace
            self.session_id = self.client.create_session("Chat", directory=workspace).id
        return self.session_id

    def find_agent(self) -> str:
        """Return the agent that was chosen, else the session's own, else the default one."""
        own = self.client.get_session(self.session_id).agent if self.session_id else ""
        return self.agent or own or self.invocation.settings.default_agent


def is_command(text: str) -> bool:
    """Say whether a line is a slash command; `//` begins a message that begins with a slash."""
    return text.startswith("/") and not text.startswith("//")


def run_command(state: ChatState, line: str) -> str:
    """Do what a line such as `/agent plan` says; what is wrong with it is told.

    Returns a message that is to be sent now, if the command has one.
    """
    word, _, rest = line.strip().partition(" ")
    known = COMMANDS.get(word)
    try:
        if known is None:
            near = difflib.get_close_matches(word, COMMANDS, n=1)
            meant = f" Did you mean {near[0]}?" if near else ""
            raise UsageError(detail=f"There is no {word[:40]}.{meant} /help lists what there is.")
        return known[0](state, rest.strip()) or ""
    except HoldfastError as error:
        say(make_printable(f"{error}"), err=True)
        return ""


def _handle_help(state: ChatState, _rest: str) -> None:
    """Show this list."""
    rows = [{"command": name, "does": about} for name, (_, about) in COMMANDS.items()]
    emit(rows, columns=["command", "does"])
    say(
        "@FILE puts a file before the model, !COMMAND runs a command in your name. Alt-Enter, or "
        "\\ before Enter, begins another line; Ctrl-G opens your editor."
    )


def _handle_agent(state: ChatState, rest: str) -> None:
    if not rest:
        rows = [
            {"agent": agent.name, "description": agent.description}
            for agent in state.client.list_agents()
            if agent.mode != "subagent"
        ]
        emit(rows, columns=["agent", "description"])
        say(make_printable(f"{state.find_agent()} answers."))
        return
    found = state.client.get_agent(rest)
    if found is None:
        raise NotFound(kind="agent", value=rest)
    state.agent = found.name
    say(f"{found.name} answers from now on.")


def _handle_model(state: ChatState, rest: str) -> None:
    ready = state.client.providers.model(rest or state.model)
    if rest:
        state.model = rest
        say(make_printable(ready.notice), err=True)
    say(make_printable(f"The model is {ready.model.info.provider}:{ready.model.info.model}."))


def _handle_tools(state: ChatState, _rest: str) -> None:
    context = state.client.sessions.context(state.session(), state.agent)
    rows = [
        {"tool": spec.name, "does": spec.description.splitlines()[0] if spec.description else ""}
        for spec in context.tool_specs
    ]
    emit(rows, columns=["tool", "does"])


def _handle_context(state: ChatState, _rest: str) -> None:
    context = state.client.sessions.context(state.session(), state.agent)
    model = state.client.providers.model(state.model).model
    account = context.account_for(model.count_tokens, limit=compute_room(model.info).usable)
    rows = [{"part": line.name, "tokens": line.tokens, "note": line.note} for line in account.lines]
    emit(rows, columns=["part", "tokens", "note"])
    say(f"{account.total} of {account.limit} tokens, {account.left} left.")


def _compact(state: ChatState, rest: str) -> None:
    made = state.client.sessions.compact(state.session(), focus=rest, model=state.model)
    say("The older part is summarised." if made else "There is nothing worth summarising.")


def _undo(state: ChatState, rest: str) -> None:
    session_id, to = _find_mark(state, rest)
    report = state.client.sessions.undo(session_id, to=to)
    say(make_printable(f"Taken back: {' '.join(report.message.split())[:60]}"))
    for path in report.restored:
        say(f"  restored {path}")
    for path, why in report.left.items():
        say(f"  left as it is: {path}: {why}", color="yellow")
    say("What commands did stays as it is.", err=True)


def _find_mark(state: ChatState, rest: str) -> tuple[str, int | None]:
    """Return to which event to go back: a number that was given, or before the last message."""
    session_id = state.session()
    if rest:
        if not rest.isdecimal():
            raise UsageError(detail="/undo takes the number of an event: holdfast sessions show.")
        return session_id, int(rest)
    if state.marks and state.marks[-1][0] == session_id:
        return state.marks.pop()
    return session_id, None


def _fork(state: ChatState, rest: str) -> None:
    state.session_id = state.client.fork_session(state.session(), title=rest).id
    say("This goes on in a copy; the session before stays as it is. /sessions lists both.")


def _list_sessions(state: ChatState) -> Sequence[Session]:
    where = SessionFilter(directory=str(state.client.settings.workspace), parent_id="")
    return state.client.list_sessions(where, limit=20).items


def _handle_sessions(state: ChatState, _rest: str) -> None:
    rows = [
        {
            "n": f"{'*' if session.id == state.session_id else ' '} {number}",
            "title": session.title,
            "messages": session.message_count,
            "used": format_age(session.time_updated),
        }
        for number, session in enumerate(_list_sessions(state), 1)
    ]
    emit(rows, columns=["n", "title", "messages", "used"])
    say("/session N goes on in one of them.")


def _handle_session(state: ChatState, rest: str) -> None:
    if rest.isdecimal() and 0 < int(rest) <= len(found := _list_sessions(state)):
        state.session_id = found[int(rest) - 1].id
    elif rest:
        state.session_id = state.client.get_session(rest).id
    if rest:
        show_history(state.client, state.session_id)
    if not state.session_id:
        say("Nothing was said yet.")
        return
    session = state.client.get_session(state.session_id)
    say(make_printable(f"Session {session.id} in {session.directory}: {session.title}."))


def _handle_new(state: ChatState, _rest: str) -> None:
    state.session_id = ""
    say("The next message begins a new session.")


def _handle_plan(state: ChatState, rest: str) -> str:
    if state.find_agent() == _PLANNER and not rest:
        state.agent = state.invocation.settings.default_agent
        say(f"{state.agent} answers again.")
        return ""
    state.agent = _PLANNER
    say("plan answers: it reads and proposes, and changes nothing. /plan goes back.")
    return rest


def _handle_image(state: ChatState, rest: str) -> str:
    path, message = _split_path(rest)
    if not path:
        raise UsageError(detail="Name a picture: /image PATH, and a question if you like.")
    if not state.attach(path):
        return ""
    if not message:
        say("It stands before the model; now ask about it.")
    return message


def _split_path(rest: str) -> tuple[str, str]:
    quoted = re.match(r'"([^"]+)"\s*(.*)', rest, re.DOTALL)
    if quoted:
        return quoted[1], quoted[2]
    path, _, message = rest.partition(" ")
    return path.removeprefix("@"), message.strip()


def _handle_editor(state: ChatState, rest: str) -> str:
    return (click.edit(rest, extension=".md") or "").strip()


def _handle_history(state: ChatState, rest: str) -> None:
    show_history(state.client, state.session(), int(rest) if rest.isdecimal() else 50)


def _handle_cost(state: ChatState, _rest: str) -> None:
    say(f"{state.tokens} tokens, ${state.cost_usd:.4f} in this chat.")
    if state.session_id:
        session = state.client.get_session(state.session_id)
        whole = f"{session.total_tokens} tokens, ${session.total_cost:.4f}"
        say(f"{whole} in the whole session, {session.model_calls} answers.", err=True)


def _handle_skills(state: ChatState, _rest: str) -> None:
    catalog = state.client.skills.list()
    rows = [{"skill": skill.name, "description": skill.description} for skill in catalog.offered]
    emit(rows, columns=["skill", "description"])


def _handle_exit(state: ChatState, _rest: str) -> None:
    state.is_over = True


COMMANDS: Final[dict[str, tuple[Callable[[ChatState, str], str | None], str]]] = {
    "/help": (_handle_help, "Show this list."),
    "/agent": (_handle_agent, "List agents, or let the one named answer."),
    "/model": (_handle_model, "Show the model, or change it."),
    "/tools": (_handle_tools, "List what the agent can use."),
    "/skills": (_handle_skills, "List the skills that it can load."),
    "/context": (_handle_context, "Show what takes how much of the context."),
    "/compact": (_compact, "Summarise the older part; say what matters most, if you like."),
    "/undo": (_undo, "Take back the last message with the files that it changed, or to event N."),
    "/fork": (_fork, "Go on in a copy of the session."),
    "/plan": (_handle_plan, "Let the agent plan only, or go back; send a message if you like."),
    "/image": (_handle_image, "Put a picture before the model: /image PATH question."),
    "/editor": (_handle_editor, "Write the message in your editor; Ctrl-G does so too."),
    "/history": (_handle_history, "Show the conversation so far."),
    "/sessions": (_handle_sessions, "List the latest sessions of this folder."),
    "/session": (_handle_session, "Show the session, or go on in another one."),
    "/new": (_handle_new, "Begin a new session."),
    "/cost": (_handle_cost, "Show what this chat has used."),
    "/exit": (_handle_exit, "Leave; so do Ctrl-D, and Ctrl-C twice."),
    "/quit": (_handle_exit, "Leave, as /exit does."),
}
