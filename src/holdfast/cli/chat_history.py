"""What was said in a session before, as a chat shows it to who comes back."""

from __future__ import annotations

import re

from holdfast.cli.call_view import describe_after
from holdfast.cli.output import make_printable, say
from holdfast.cli.screen import show_lines
from holdfast.messages import Message, TextPart, ToolPart
from holdfast.sync import Client

MOST_SHOWN = 12
_BY_HAND = re.compile(r"Call the tool [\w.:/-]+\.")
"""What stands for the person where a tool was called by hand; the call itself is shown."""
_LONGEST = 2_000


def show_history(client: Client, session_id: str, most: int = MOST_SHOWN) -> None:
    """Print the newest messages of a session, oldest first."""
    session = client.get_session(session_id)
    page = client.list_messages(session_id, limit=min(most, 500), newest_first=True)
    earlier = session.message_count - len(page.items)
    if earlier > 0:
        say(f"… {earlier} earlier messages: /history {session.message_count}", color="bright_black")
    for message in reversed(page.items):
        _show_message(message)


def _show_message(message: Message) -> None:
    is_person = message.role == "user"
    for part in message.parts:
        if isinstance(part, ToolPart):
            show_lines(describe_after(part)[:1])
        elif isinstance(part, TextPart) and part.text.strip() and not _BY_HAND.fullmatch(part.text):
            text = part.text if len(part.text) <= _LONGEST else f"{part.text[:_LONGEST]}…"
            lines = make_printable(text).splitlines()
            for number, line in enumerate(lines):
                mark = ("> " if number == 0 else "  ") if is_person else ""
                say(f"{mark}{line}", color="bright_black" if is_person else "")


__all__ = ["show_history"]
