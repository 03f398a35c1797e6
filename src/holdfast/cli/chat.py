"""`holdfast chat`: talk with an agent."""

from __future__ import annotations

import getpass

import click
import msgspec

from holdfast.agents import AgentResult
from holdfast.cli.chat_commands import COMMANDS, ChatState, is_command, run_command
from holdfast.cli.chat_input import (
    HISTORY_FILE,
    ChatHistory,
    StreamReader,
    ask_line,
    open_reader,
    read_message,
)
from holdfast.cli.chat_turn import ChatApprover, ChatTurn
from holdfast.cli.failures import report
from holdfast.cli.frame import CliCommand, Invocation, pass_invocation
from holdfast.cli.hooks import say_what_is_left_out
from holdfast.cli.interrupts import INTERRUPTS
from holdfast.cli.output import emit, make_printable, say
from holdfast.cli.run import end_with
from holdfast.cli.screen import Screen
from holdfast.errors import HoldfastError, UsageError, make_error_from_dict
from holdfast.runtime import OpenQuestion
from holdfast.sync import Client
from holdfast.tools import AutoConfirm

_VERDICTS = ("happened", "not-happened", "abort")


@click.command("chat", cls=CliCommand)
@click.option("--agent", default="", metavar="NAME", help="Agent; else the session's, or build.")
@click.option("--plugins", is_flag=True, help="Also agents of installed packages.")
@click.option("--model", default="", metavar="NAME", help="Model, as in openai:gpt-5.2.")
@click.option("--session", default="", metavar="ID", help="Go on in this session.")
@click.option("-c", "--continue", "is_continued", is_flag=True, help="Go on in the latest session.")
@click.option("--auto-confirm", is_flag=True, help="Answer yes to what asks; denies stay denied.")
@click.option("--plain", is_flag=True, help="Print Markdown as it is; read lines with readline.")
@pass_invocation
def command(
    invocation: Invocation,
    agent: str,
    plugins: bool,
    model: str,
    session: str,
    is_continued: bool,
    auto_confirm: bool,
    plain: bool,
) -> None:
    """Talk with an agent: answers as they arrive, calls in one line each.

    /help lists the commands. Ctrl-C stops the turn, twice leaves; so does Ctrl-D. Calls that
    ask are put before you, with what they would change.

    Without a terminal each line of stdin is a turn, what asks is refused, and the first turn
    that fails ends it.
    """
    with Client(invocation.place, settings=invocation.settings) as client:
        if plugins:
            client.agents.load_installed()
        state = ChatState(client, invocation, agent=agent, model=model)
        state.session_id = _open_session(client, session, is_continued)
        chat = _Chat(state, is_plain=plain, is_confirmed=auto_confirm)
        # Here Ctrl-C means the line or the turn; only one that no person takes ends the chat.
        with INTERRUPTS.as_usual():
            chat.talk()


def _open_session(client: Client, wanted: str, is_continued: bool) -> str:
    if wanted and is_continued:
        raise UsageError(detail="Give --session or --continue, not both.")
    if wanted:
        return client.get_session(wanted).id
    latest = client.sessions.most_recent() if is_continued else None
    return latest.id if latest is not None else ""


class _Chat:
    """A chat under way."""

    def __init__(self, state: ChatState, *, is_plain: bool, is_confirmed: bool) -> None:
        invocation, client = state.invocation, state.client
        self._state = state
        history = ChatHistory(client.settings.storage_path / HISTORY_FILE, client.redactor.text)
        self._reader = open_reader(invocation, history, list(COMMANDS), is_plain=is_plain)
        self._is_attended = not isinstance(self._reader, StreamReader)
        asker = ChatApprover() if self._is_attended and not is_confirmed else None
        client.approver = AutoConfirm() if is_confirmed else asker
        self._screen = Screen(invocation, has_markdown=self._is_attended and not is_plain)
        self._turn = ChatTurn(client, self._screen, asker)

    def talk(self) -> None:
        """Take message after message until there are no more."""
        ready = self._state.client.providers.model(self._state.model)
        say(ready.notice, err=True, color="yellow")
        say_what_is_left_out(self._state.client.hooks.list())
        if self._is_attended:
            say("/help lists the commands, Ctrl-D leaves.", err=True)
        has_interrupted = False
        while not self._state.is_over:
            try:
                text = read_message(self._reader, "> ")
                has_interrupted = False
            except EOFError:
                if self._is_attended:
                    click.echo()
                return
            except KeyboardInterrupt:
                if has_interrupted or not self._is_attended:
                    raise
                has_interrupted = True
                say("\nCtrl-C again leaves the chat.", err=True)
                continue
            self._take(text)

    def _take(self, text: str) -> None:
        """Do what a line says: a command, or a turn."""
        if not text:
            return
        if is_command(text):
            run_command(self._state, text)
            return
        try:
            result = self._make_answered(text.removeprefix("/") if text.startswith("//") else text)
        except HoldfastError as error:
            if not self._is_attended:
                raise
            report(error, self._state.invocation)
            return
        if not self._is_attended and result.status != "completed":
            end_with(result)

    def _make_answered(self, text: str) -> AgentResult:
        """Run a turn; what waits for the person meanwhile is put before them."""
        state = self._state
        result = self._run(text)
        while result.status == "parked" and self._is_attended:
            answers = [
                self._answer(item)
                for item in state.client.approvals.questions()
                if item.run_id == result.run_id
            ]
            if not all(answers):
                state.client.runs.cancel(result.run_id, reason="the person did not answer")
            result = self._run("", run_id=result.run_id)
        self._tell(result)
        return result

    def _run(self, text: str, *, run_id: str = "") -> AgentResult:
        state = self._state
        result = self._turn.run(
            state.agent, state.session_id, text, model=state.model, run_id=run_id
        )
        state.session_id = result.session_id
        return result

    def _tell(self, result: AgentResult) -> None:
        state = self._state
        state.cost_usd += result.cost_usd
        state.tokens += result.tokens_used.total
        self._screen.tell(result)
        if not state.invocation.is_text:
            # One line per turn, whatever the form: a program reads them as they come.
            click.echo(msgspec.json.encode({"type": "AgentResult", "data": result}))
        elif result.status == "failed" and self._is_attended:
            report(make_error_from_dict(result.metadata.get("error", {})), state.invocation)
        elif result.status == "parked":
            say("It waits for a person: holdfast approvals list", err=True)

    def _answer(self, item: OpenQuestion) -> bool:
        """Put something that waits before the person; says whether it was answered."""
        by, client = getpass.getuser(), self._state.client
        try:
            if item.reason == "unknown_outcome":
                say(make_printable(f"{item.tool}: it is not known whether it happened."), err=True)
                told = ask_line(f"[{', '.join(_VERDICTS)}]").replace("_", "-")
                if told not in _VERDICTS:
                    return False
                verdict = told.replace("-", "_")
                client.approvals.decide_outcome(item.session_id, item.call_id, verdict, by=by)  # type: ignore[arg-type]
                return True
            emit(item.request)
            answer = ask_line(make_printable(f"{item.tool} asks"))
            if answer:
                client.approvals.answer(item.session_id, item.call_id, answer, by=by)
            return bool(answer)
        except click.Abort:
            click.echo(err=True)
            return False


__all__ = ["command"]
