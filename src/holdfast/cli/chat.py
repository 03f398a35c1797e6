"""`holdfast chat`: talk with an agent."""

from __future__ import annotations

import getpass
from pathlib import Path

import click
import msgspec

from holdfast.agents import AgentResult
from holdfast.cli.call_view import describe_after
from holdfast.cli.chat_commands import COMMANDS, ChatState, is_command, run_command
from holdfast.cli.chat_files import FileNames, find_mentions, find_missing
from holdfast.cli.chat_history import show_history
from holdfast.cli.chat_input import (
    HISTORY_FILE,
    ChatHistory,
    ChatWords,
    StreamReader,
    ask_line,
    open_reader,
    read_message,
)
from holdfast.cli.chat_status import LONG_S, SandboxName, format_status, notify
from holdfast.cli.chat_turn import ChatApprover, ChatTurn
from holdfast.cli.failures import report
from holdfast.cli.frame import CliCommand, Invocation, pass_invocation
from holdfast.cli.hooks import say_what_is_left_out
from holdfast.cli.interrupts import INTERRUPTS
from holdfast.cli.output import emit, make_printable, say
from holdfast.cli.run import end_with
from holdfast.cli.screen import Screen, show_lines
from holdfast.errors import HoldfastError, NotFound, UsageError, make_error_from_dict
from holdfast.providers import ModelInfo
from holdfast.runtime import OpenQuestion
from holdfast.sessions import SessionFilter
from holdfast.sync import Client
from holdfast.tools import AutoConfirm

_MOST_SHELL_LINES = 500
_VERDICTS = ("happened", "not-happened", "abort")


@click.command("chat", cls=CliCommand)
@click.option("--agent", default="", metavar="NAME", help="Agent; else the session's, or build.")
@click.option("--plugins", is_flag=True, help="Also agents of installed packages.")
@click.option("--model", default="", metavar="NAME", help="Model, as in openai:gpt-5.2.")
@click.option("--session", default="", metavar="ID", help="Go on in this session.")
@click.option(
    "-c", "--continue", "is_continued", is_flag=True, help="Go on in this folder's latest session."
)
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
    """Talk with an agent: answers as they arrive, calls before and after they run.

    /help lists the commands; @FILE puts a file before the model, !COMMAND runs a command. A
    paste stays whole, Alt-Enter begins another line, Ctrl-G opens your editor. Ctrl-C stops the
    turn, twice leaves; so does Ctrl-D. Calls that ask are put before you, with what they would
    change; the terminal rings when one waits.

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
    """Return the session to go on in; `--continue` means one of this folder, and no other."""
    if wanted and is_continued:
        raise UsageError(detail="Give --session or --continue, not both.")
    folder = str(client.settings.workspace)
    if wanted:
        found = client.get_session(wanted)
        if found.directory != folder:
            say(f"This session works in {found.directory}, not here.", err=True, color="yellow")
        return found.id
    if not is_continued:
        return ""
    latest = client.sessions.most_recent(SessionFilter(directory=folder, parent_id=""))
    if latest is None:
        say("There is no session of this folder yet; a new one begins.", err=True)
        return ""
    return latest.id


class _Chat:
    """A chat under way."""

    def __init__(self, state: ChatState, *, is_plain: bool, is_confirmed: bool) -> None:
        invocation, client = state.invocation, state.client
        self._state = state
        state.attach = self._attach
        history = ChatHistory(client.settings.storage_path / HISTORY_FILE, client.redactor.text)
        self._place = Path(client.settings.workspace)
        words = ChatWords(list(COMMANDS), FileNames(self._place).complete)
        self._reader = open_reader(
            invocation, history, words, self._describe_status, is_plain=is_plain
        )
        self._is_attended = not isinstance(self._reader, StreamReader)
        asker = ChatApprover() if self._is_attended and not is_confirmed else None
        client.approver = AutoConfirm() if is_confirmed else asker
        has_markdown = self._is_attended and not is_plain
        self._screen = Screen(invocation, has_markdown=has_markdown, is_chat=True)
        self._turn = ChatTurn(client, self._screen, asker)
        self._sandbox = SandboxName() if self._is_attended else None
        self._info: ModelInfo | None = None
        self._known_model = ""

    def talk(self) -> None:
        """Take message after message until there are no more."""
        wanted = self._state.agent
        if wanted and self._state.client.agents.get(wanted) is None:
            raise NotFound(kind="agent", value=wanted)
        ready = self._state.client.providers.model(self._state.model)
        self._info, self._known_model = ready.model.info, self._state.model
        notice = ready.notice
        if self._is_attended:
            # The next line names the model, and who asked for it knows that; cautions stay.
            named = f"Using {self._info.provider}:{self._info.model}, as asked for."
            notice = notice.removeprefix(named).lstrip()
        if notice:
            say(notice, err=True, color="yellow")
        say_what_is_left_out(self._state.client.hooks.list())
        if self._is_attended:
            self._say_where()
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

    def _say_where(self) -> None:
        """Say where one is, and show what was said before in a session that goes on."""
        info = self._info
        assert info is not None
        who = f"{self._state.find_agent()} with {info.provider}:{info.model}"
        say(f"{who} in {_shorten_home(self._place)}", err=True)
        say("/help lists the commands, Ctrl-D leaves.", err=True, color="bright_black")
        if self._state.session_id:
            show_history(self._state.client, self._state.session_id)

    def _describe_status(self) -> str:
        """Return the status line below the prompt."""
        state, info = self._state, self._info
        if state.model != self._known_model or info is None:
            self._info = info = state.client.providers.model(state.model).model.info
            self._known_model = state.model
        return format_status(
            agent=state.find_agent(),
            model=f"{info.provider}:{info.model}",
            used=self._screen.context_tokens,
            window=info.context_window,
            cost_usd=state.cost_usd,
            sandbox=self._sandbox.text if self._sandbox is not None else "",
        )

    def _take(self, text: str) -> None:
        """Do what a line says: a slash command, a shell command, or a turn."""
        if is_command(text):
            text = run_command(self._state, text)
        if not text:
            return
        try:
            if text.startswith("!"):
                self._run_shell(text.removeprefix("!").strip())
                return
            result = self._send(text.removeprefix("/") if text.startswith("//") else text)
        except HoldfastError as error:
            if not self._is_attended:
                raise
            report(error, self._state.invocation)
            return
        if not self._is_attended and result.status != "completed":
            end_with(result)

    def _send(self, text: str) -> AgentResult:
        """Run a turn on a message, after the files that it names were put before the model."""
        state = self._state
        named = find_mentions(text, self._place)
        if named or state.session_id:
            session_id = state.session()
            state.marks.append((session_id, state.client.events.count(session_id)))
        for path in named:
            self._attach(path)
        for name in find_missing(text, self._place):
            say(f"@{name}: no such file here; it is sent as words.", err=True, color="yellow")
        return self._make_answered(text)

    def _attach(self, path: str) -> bool:
        """Put a file, or a picture, before the model.

        Today that is a call of `read` in the person's name: it passes the gate, is kept with the
        session, and labels what the model has seen. Messages that carry files themselves would
        replace this function, and nothing else.
        """
        place = str(Path(path).expanduser())
        done = self._turn.call("read", {"file_path": place}, self._state.session())
        show_lines(describe_after(done.part)[:1])
        return done.part.state == "completed"

    def _run_shell(self, line: str) -> None:
        """Run a command in the person's name, through the gate; the model sees it later."""
        if not line:
            raise UsageError(detail="Write the command behind the !, as in !git status.")
        part = self._turn.call("bash", {"command": line}, self._state.session()).part
        text = part.output or part.error
        for shown in text.rstrip().splitlines()[-_MOST_SHELL_LINES:]:
            say(shown, color="" if part.state == "completed" else "red")

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
        if result.duration >= LONG_S and self._is_attended:
            notify("the answer is there")
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
            notify(f"{item.tool} asks")
            emit(item.request)
            answer = ask_line(make_printable(f"{item.tool} asks"))
            if answer:
                client.approvals.answer(item.session_id, item.call_id, answer, by=by)
            return bool(answer)
        except click.Abort:
            click.echo(err=True)
            return False


def _shorten_home(place: Path) -> str:
    """Return a folder as people write it."""
    try:
        return str("~" / place.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(place)


__all__ = ["command"]
