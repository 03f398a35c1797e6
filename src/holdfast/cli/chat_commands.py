"""Slash commands of a chat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.cli.frame import Invocation
from holdfast.cli.output import emit, make_printable, say
from holdfast.context import compute_room
from holdfast.errors import HoldfastError, NotFound, UsageError
from holdfast.sync import Client


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

    def session(self) -> str:
        """Return the session, made now if nothing was said yet."""
        if not self.session_id:
            workspace = self.client.settings.workspace
            self.session_id = self.client.create_session("Chat", directory=workspace).id
        return self.session_id


def is_command(text: str) -> bool:
    """Say whether a line is a slash command; `//` begins a message that begins with a slash."""
    return text.startswith("/") and not text.startswith("//")


def run_command(state: ChatState, line: str) -> None:
    """Do what a line such as `/agent plan` says; what is wrong with it is told."""
    word, _, rest = line.strip().partition(" ")
    known = COMMANDS.get(word)
    try:
        if known is None:
            raise UsageError(detail=f"There is no {word[:40]}; /help lists what there is.")
        known[0](state, rest.strip())
    except HoldfastError as error:
        say(make_printable(f"{error}"), err=True)


def _handle_help(state: ChatState, _rest: str) -> None:
    """Show this list."""
    rows = [{"command": name, "does": about} for name, (_, about) in COMMANDS.items()]
    emit(rows, columns=["command", "does"])
    say('End a line with \\ to go on in the next, or write """ before and after a longer text.')


def _handle_agent(state: ChatState, rest: str) -> None:
    if not rest:
        rows = [
            {"agent": agent.name, "description": agent.description}
            for agent in state.client.list_agents()
            if agent.mode != "subagent"
        ]
        emit(rows, columns=["agent", "description"])
        say(make_printable(f"{_describe_answering(state)} answers."))
        return
    found = state.client.get_agent(rest)
    if found is None:
        raise NotFound(kind="agent", value=rest)
    state.agent = found.name
    say(f"{found.name} answers from now on.")


def _describe_answering(state: ChatState) -> str:
    """Return the agent that was chosen, else the session's own, else the default one."""
    own = state.client.get_session(state.session_id).agent if state.session_id else ""
    return state.agent or own or state.invocation.settings.default_agent


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


def _undo(state: ChatState, _rest: str) -> None:
    page = state.client.list_messages(state.session(), limit=500, newest_first=True)
    last = next((m for m in page.items if m.role == "user" and m.run_id), None)
    if last is None:
        raise UsageError(detail="There is nothing to take back.")
    before = state.client.runs.get(last.run_id).queued_at - 1
    state.client.revert_session(state.session(), to=before)
    say(make_printable(f"Taken back: {' '.join(last.text.split())[:60]}"))
    say("Files and other effects stay as they are.", err=True)


def _fork(state: ChatState, rest: str) -> None:
    state.session_id = state.client.fork_session(state.session(), title=rest).id
    say(f"This goes on in session {state.session_id}; the other one stays as it is.")


def _handle_sessions(state: ChatState, _rest: str) -> None:
    rows = [
        {
            "id": ("* " if session.id == state.session_id else "  ") + session.id,
            "title": session.title,
            "messages": session.message_count,
        }
        for session in state.client.list_sessions(limit=20).items
    ]
    emit(rows, columns=["id", "title", "messages"])
    say("/session ID goes on in one of them.")


def _handle_session(state: ChatState, rest: str) -> None:
    if rest:
        state.session_id = state.client.get_session(rest).id
    say(f"Session {state.session_id}." if state.session_id else "Nothing was said yet.")


def _handle_new(state: ChatState, _rest: str) -> None:
    state.session_id = ""
    say("The next message begins a new session.")


def _handle_cost(state: ChatState, _rest: str) -> None:
    say(f"{state.tokens} tokens, ${state.cost_usd:.4f} in this chat.")


def _handle_skills(state: ChatState, _rest: str) -> None:
    catalog = state.client.skills.list()
    rows = [{"skill": skill.name, "description": skill.description} for skill in catalog.offered]
    emit(rows, columns=["skill", "description"])


def _handle_exit(state: ChatState, _rest: str) -> None:
    state.is_over = True


COMMANDS: Final[dict[str, tuple[Callable[[ChatState, str], None], str]]] = {
    "/help": (_handle_help, "Show this list."),
    "/agent": (_handle_agent, "List agents, or let the one named answer."),
    "/model": (_handle_model, "Show the model, or change it."),
    "/tools": (_handle_tools, "List what the agent can use."),
    "/skills": (_handle_skills, "List the skills that it can load."),
    "/context": (_handle_context, "Show what takes how much of the context."),
    "/compact": (_compact, "Summarise the older part; say what matters most, if you like."),
    "/undo": (_undo, "Take the last message and its answer out of the conversation."),
    "/fork": (_fork, "Go on in a copy of the session."),
    "/sessions": (_handle_sessions, "List the latest sessions."),
    "/session": (_handle_session, "Show the session, or go on in another one."),
    "/new": (_handle_new, "Begin a new session."),
    "/cost": (_handle_cost, "Show what this chat has used."),
    "/exit": (_handle_exit, "Leave; so do Ctrl-D, and Ctrl-C twice."),
    "/quit": (_handle_exit, "Leave, as /exit does."),
}
