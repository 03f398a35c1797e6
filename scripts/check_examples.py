"""Check the types of every example and every Python block of the docs, as a reader's checker would.

mypy --strict and pyright, in one run each; errors are told with the page and the line.
`--mypy` or `--pyright` run one of them only.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
_BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PLACE: Final = re.compile(r"^\s*(?:\S*/)?(block_\d+)\.py:(\d+)")


class Block(NamedTuple):
    """Code of a page or an example, and the line where it begins."""

    page: Path
    line: int
    code: str


def list_blocks() -> list[Block]:
    """Return every example file and every Python block of README and docs."""
    found = []
    for file in [*sorted(ROOT.glob("examples/**/*.py")), *sorted(ROOT.glob("docs_src/**/*.py"))]:
        found.append(Block(file.relative_to(ROOT), 0, file.read_text(encoding="utf-8")))
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for match in _BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(page.relative_to(ROOT), line, match[1]))
    return found


def write_blocks(folder: Path, blocks: list[Block]) -> None:
    """Write each block as a module of its own, and how to check them."""
    for number, block in enumerate(blocks):
        (folder / f"block_{number}.py").write_text(block.code, encoding="utf-8")
    source = ROOT / "src"
    (folder / "mypy.ini").write_text(
        f"[mypy]\nstrict = True\nfollow_imports = silent\nmypy_path = {source}\n"
        f"cache_dir = {ROOT / '.mypy_cache' / 'docs'}\n"
    )
    (folder / "pyrightconfig.json").write_text(
        f'{{"include": ["."], "extraPaths": ["{source}"], "typeCheckingMode": "standard"}}'
    )


def check(command: list[str], folder: Path, blocks: list[Block]) -> int:
    """Run a checker over the folder and print what it finds; returns its exit status."""
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    for line in ended.stdout.splitlines():
        place = _PLACE.match(line)
        if place is None:
            sys.stdout.write(f"{line}\n")
            continue
        block = blocks[int(place[1].removeprefix("block_"))]
        sys.stdout.write(f"{block.page}:{block.line + int(place[2])}{line[place.end() :]}\n")
    if ended.stderr:
        sys.stderr.write(ended.stderr)
    return ended.returncode


def main(arguments: list[str]) -> int:
    """Check everything; 0 if both checkers are content."""
    commands = {
        "--mypy": [sys.executable, "-m", "mypy", "--no-error-summary", "."],
        "--pyright": [sys.executable, "-m", "pyright", "--pythonpath", sys.executable],
    }
    blocks = list_blocks()
    status = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_blocks(folder, blocks)
        for name, command in commands.items():
            if not arguments or name in arguments:
                status |= check(command, folder, blocks)
    outcome = "errors" if status else "no errors"
    sys.stdout.write(f"{len(blocks)} examples and blocks of the docs: {outcome}\n")
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
