"""Draw what a person sees of `holdfast chat`: an SVG and a text of each scene.

    .venv/bin/python scripts/record_chat.py [FOLDER]      (by default docs/pictures)

A real program at a real pseudo terminal, a scripted model server behind it, and pyte in place of
the screen. The scenes are what the tests drive; this is to look at them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import Final

import pyte

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from holdfast.testing.fake_server import FakeServer, Reply, ScriptedCall  # noqa: E402
from tests.behaviour.cli.terminal import COLUMNS, LINES, Terminal  # noqa: E402

KEY: Final = "sk-test-3f9a8b7c6d5e4f3a2b1c"
CELL: Final = (8.4, 18)
COLORS: Final = {
    "default": "#d4d4d4", "black": "#1e1e1e", "red": "#f14c4c", "green": "#23d18b",
    "brown": "#e5e510", "yellow": "#e5e510", "blue": "#3b8eea", "magenta": "#d670d6",
    "cyan": "#29b8db", "white": "#e5e5e5", "brightblack": "#8a8a8a",
}  # fmt: skip
ANSWER: Final = """## What changed

The greeting in `hello.py` is **friendlier** now, and the tests still pass:

```python
def greet(name: str) -> str:
    return f"Hello, {name}. Good to see you."
```

1. the function has a type
2. the old text is gone
"""


def call(name: str, **arguments: object) -> Reply:
    """Return an answer that calls a tool."""
    return Reply(calls=(ScriptedCall(name=name, arguments=json.dumps(arguments)),))


def draw(screen: pyte.Screen) -> tuple[str, str]:
    """Return the screen as an SVG picture and as text."""
    width, height = CELL
    rows = []
    kept = list_rows(screen)
    for number, row in enumerate(kept):
        text, cells, line = screen.display[row], screen.buffer[row], []
        for column, mark in enumerate(text):
            if not mark.strip():
                continue
            cell = cells[column]
            colour = COLORS.get(cell.fg, f"#{cell.fg}")
            weight = ' font-weight="bold"' if cell.bold else ""
            place = f'x="{column * width:.1f}" y="{(number + 1) * height}"'
            line.append(f'<text {place} fill="{colour}"{weight}>{escape(mark)}</text>')
        rows += line
    size = f'width="{screen.columns * width:.0f}" height="{(len(kept) + 1) * height}"'
    body = "\n".join(rows)
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="14">\n'
        f'<rect width="100%" height="100%" fill="#1e1e1e"/>\n{body}\n</svg>\n'
    )
    whole = "\n".join(screen.display[row].rstrip() for row in kept).strip()
    return picture, whole + "\n"


def list_rows(screen: pyte.Screen) -> list[int]:
    """Return the rows to draw: all but what is empty above the line at the bottom."""
    filled = [row for row, text in enumerate(screen.display) if text.strip()]
    *above, last = filled or [0]
    end = above[-1] + 1 if above else 0
    return [*range(end), *([end] if last > end else []), last]


class SeenTerminal(Terminal):
    """A terminal with a screen, of which pictures are taken."""

    def __init__(self, folder: Path, *words: str, home: Path, environment: dict[str, str]) -> None:
        """Sit down at it."""
        self._folder = folder
        self._seen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._seen)
        super().__init__(*words, home=home, environment=environment)

    def show(self, piece: bytes) -> tuple[int, int]:
        """Draw what was printed."""
        self._stream.feed(piece)
        return self._seen.cursor.y + 1, self._seen.cursor.x + 1

    def take(self, name: str) -> None:
        """Write a picture and a text of the screen."""
        picture, text = draw(self._seen)
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / f"{name}.svg").write_text(picture, encoding="utf-8")
        (self._folder / f"{name}.txt").write_text(text, encoding="utf-8")
        sys.stdout.write(f"--- {name}\n{text}")


def furnish(home: Path) -> None:
    """Put a small project there, and an agent that asks."""
    (home / "hello.py").write_text('def greet(name):\n    return "Hi " + name\n')
    (home / "test_hello.py").write_text("def test_it():\n    assert True\n")
    agents = home / ".config" / "holdfast" / "agents"
    agents.mkdir(parents=True)
    (agents / "careful.md").write_text(
        "---\ndescription: asks before it changes something\npermission:\n"
        "  - {permission: read, pattern: '*', action: allow}\n"
        "  - {permission: write, pattern: '*', action: ask}\n"
        "  - {permission: bash, pattern: '*', action: ask}\n---\nWork carefully.\n"
    )


async def play(folder: Path, home: Path) -> None:
    """Sit down at a chat twice: work and take it back, then come back to it."""
    furnish(home)
    async with FakeServer(key=KEY) as server:
        around = {
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": server.base_url,
            "AGENT_FORCE_CHAT_COMPLETIONS": "true",
            "AGENT_STATE_DIR": str(home / ".state"),
            "AGENT_WORKSPACE": str(home),
        }
        words = ("-m", "holdfast", "chat", "--model", "openai:gpt-4o-mini", "--agent", "careful")
        new = 'def greet(name: str) -> str:\n    return f"Hello, {name}. Good to see you."\n'
        server.answers.extend(
            [
                call("write", file_path="hello.py", content=new),
                call("bash", command="python3 -c 'import hello; print(hello.greet(\"Ann\"))'"),
                Reply(text=ANSWER),
            ]
        )
        async with SeenTerminal(folder, *words, home=home, environment=around) as terminal:
            await terminal.sees("careful · openai")
            terminal.type("Make the greeting in @hel")
            await terminal.sees("test_hello.py")
            terminal.take("chat-completion")
            terminal.type("lo.py friendlier\x1b\rand show that it works\r")
            await terminal.sees("q stop]")
            terminal.take("chat-approval")
            terminal.enter("y")
            await terminal.sees("q stop]")
            terminal.enter("y")
            await terminal.sees("completed in")
            await terminal.sees("careful · openai")
            terminal.take("chat-turn")
            terminal.enter("/undo")
            await terminal.sees("restored")
            terminal.enter("!git --version")
            await terminal.sees("git version")
            await terminal.sees("careful · openai")
            terminal.take("chat-undo")
            terminal.type("\x04")
            await terminal.ends()
        async with SeenTerminal(
            folder, *words, "--continue", home=home, environment=around
        ) as terminal:
            await terminal.sees("careful · openai")
            terminal.enter("/help")
            await terminal.sees("/exit")
            await terminal.sees("careful · openai")
            terminal.take("chat-resumed")
            terminal.type("\x04")
            await terminal.ends()


def main() -> None:
    """Record all scenes."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures"
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(play(folder, Path(home)))


if __name__ == "__main__":
    main()
