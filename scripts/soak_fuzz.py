"""Fuzz what reads text from outside: command lines, patterns, imports and policy files.

    ./scripts/soak fuzz --minutes 5 [--seed N] [commands patterns imports policies]

Each target gets its share of the time. Texts are pieces of our corpora that are cut, joined,
repeated and spoilt; what a reader promises is checked on each: it refuses in one way only, reads
what it renders as what it was, and takes no more than a second. Prints what was tried, and how to
see a failure again; ends with 1 if there was one.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import random
import re
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import yaml

from holdfast.errors import InvalidImport, PolicyInvalid
from holdfast.journal import Journal, MemoryStore
from holdfast.policy import CallRequest, decide, load_policies
from holdfast.policy.commands import classify_command, parse_command, render_canonical_text
from holdfast.policy.patterns import clean_target, compile_matcher, find_fixed_word, is_readable
from holdfast.sessions import SESSION_PROJECTIONS, SessionManager, export_lines, parse_export
from holdfast.turns import LeaseKeeper

CORPORA = Path(__file__).parents[1] / "tests" / "corpora"
SLOWEST_S = 1.0
KINDS = ("path", "command", "host", "text", "agent", "none")
PIECES = (
    *("|", "||", "&&", ";", "&", "$(", ")", "`", "'", '"', "\\", "\n", "\0", "$HOME", "${x:-y}"),
    *(">", ">>", "<", "<<EOF\n", "2>&1", "{a,b}", "*", "**", "?", "[a-z]", "~", "#", "!", "env "),
    *("sudo ", "xargs ", "find . -exec ", "sh -c ", "-", "--", "=", "A=1 ", "\t", "é", "\u202e"),
    *("\x1b[0m", "\ud800", "٣", "../", "//", "...", ":", "{", "}", "[", "]", ",", "&a", "*a", "? "),
)


def gather(folder: str) -> list[str]:
    """Return the texts of a corpus, whatever its form."""
    found: list[str] = []

    def take(value: object) -> None:
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            for key, one in value.items():
                take(key)
                take(one)
        elif isinstance(value, list):
            for one in value:
                take(one)

    for file in sorted((CORPORA / folder).rglob("*")):
        if file.suffix in (".yaml", ".yml"):
            take(yaml.safe_load(file.read_text(encoding="utf-8")))
        elif file.is_file():
            found += file.read_text(encoding="utf-8", errors="replace").splitlines()
    return [text for text in found if text]


def spoil(chance: random.Random, texts: list[str]) -> str:
    """Make a new text of old ones."""
    text = chance.choice(texts)
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(text) + 1)
        match chance.randrange(6):
            case 0:
                text = text[:place] + chance.choice(PIECES) + text[place:]
            case 1:
                text = text[:place] + text[place + chance.randrange(1, 8) :]
            case 2:
                text = text[:place] + chance.choice(texts)[: chance.randrange(1, 60)]
            case 3:
                text = text[:place] + text[place : place + 3] * chance.randrange(2, 30)
            case 4:
                text = text[:place] + chr(chance.choice((9, 10, 0, 0x2028, 0xFEFF, 0x1F600)))
            case _:
                text = chance.choice(PIECES) + text + chance.choice(PIECES)
    return text[:4_000]


def fuzz_commands(chance: random.Random) -> Callable[[], str]:
    """A command line is read whole or not at all, and what was read is one thing only."""
    texts = gather("commands") + gather("command_rules")

    def attempt() -> str:
        text = spoil(chance, texts)
        parsed = parse_command(text)
        assert parsed.is_parsed or not parsed.pipelines, "a problem, and pipelines as well"
        assert parsed == parse_command(text), "the same text is read in two ways"
        found = classify_command(parsed)
        assert parsed.is_parsed or found.kind not in ("read", "safe"), "unread, and harmless"
        for command in parsed.commands():
            assert command.argv, "a program without a name"
            assert not any("\0" in word for word in command.argv), "a NUL in an argument"
            again = parse_command(render_canonical_text(command.argv))
            if again.is_parsed:
                argvs = [one.argv for one in again.commands()]
                assert argvs == [command.argv], "its spelling means something else"
            assert tuple(shlex.split(command.text)) == command.argv, "a shell reads it otherwise"
        return text

    return attempt


def fuzz_patterns(chance: random.Random) -> Callable[[], str]:
    """A pattern meets a target or not, soon, and one that cannot be read meets everything."""
    texts = gather("commands") + ["src/**/*.py", "*.example.org", "git *", "{a,b}/c?", "[!a]*"]

    def attempt() -> str:
        pattern, target = spoil(chance, texts)[:200], spoil(chance, texts)[:2_000]
        kind = chance.choice(KINDS)
        matches = compile_matcher(pattern, kind)
        target = clean_target(target, kind)
        met = matches(target)
        assert met or is_readable(pattern, kind), "unreadable, and it lets something pass by"
        word = find_fixed_word(pattern, kind)
        assert not (met and word) or word in target, "the word that must be there is not"
        return f"{kind}: {pattern!r} on {target!r}"

    return attempt


def fuzz_imports(chance: random.Random) -> Callable[[], str]:
    """An export that was changed is refused, as one, before anything happens."""

    async def make() -> bytes:
        journal = Journal(MemoryStore(projections=SESSION_PROJECTIONS))
        keeper = LeaseKeeper(journal)
        manager = SessionManager(journal, keeper)
        session = await manager.create_session("Fuzz", metadata={"a": [1, 2.5, None]})
        for text in ("one", "ä🙂" * 20, "three"):
            await manager.add_message(session.id, "user", text)
        keeper.close()
        return b"".join([line async for line in export_lines(journal, session.id)])

    sound = asyncio.run(make())
    parse_export(io.BytesIO(sound))

    def attempt() -> str:
        data = bytearray(sound)
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(data))
            match chance.randrange(4):
                case 0:
                    data[place] ^= 1 << chance.randrange(8)
                case 1:
                    del data[place : place + chance.randrange(1, 40)]
                case 2:
                    data[place:place] = data[: chance.randrange(1, 200)]
                case _:
                    data[place:place] = bytes(chance.randrange(256) for _ in range(8))
        try:
            parse_export(io.BytesIO(bytes(data)))
        except InvalidImport:
            return repr(bytes(data))
        assert bytes(data) == sound or _is_same(bytes(data), sound), "a changed export was taken"
        return repr(bytes(data))

    return attempt


def _is_same(one: bytes, other: bytes) -> bool:
    """Say whether two exports differ in blank space alone."""
    return one.split() == other.split() or one.rstrip() == other.rstrip()


def fuzz_policies(chance: random.Random) -> Callable[[], str]:
    """A policy file is read whole or refused with what is wrong; then every call has a decision."""
    page = (CORPORA.parents[1] / "docs" / "reference" / "policies.md").read_text(encoding="utf-8")
    files = dict(re.findall(r"## (\w+\.yaml)\n\n```yaml\n(.*?)```", page, re.DOTALL))
    place = Path(tempfile.mkdtemp(prefix="holdfast-fuzz-"))

    for name, text in files.items():
        (place / name).write_text(text, encoding="utf-8")
    assert load_policies(place) is not None, "the examples of the docs"

    def attempt() -> str:
        name = chance.choice(list(files))
        text = _spoil_lines(chance, files[name])
        (place / name).write_bytes(text.encode("utf-8", "replace"))
        try:
            bundle = load_policies(place)
        except PolicyInvalid:
            return text
        finally:
            (place / name).write_text(files[name], encoding="utf-8")
        request = CallRequest(permission="bash", targets=("git push",), target_kind="command")
        first = decide(request, bundle.find_ceiling(""))
        assert first == decide(request, bundle.find_ceiling("")), "two decisions on one question"
        return text

    return attempt


def _spoil_lines(chance: random.Random, text: str) -> str:
    """Change a file of lines a little, so that some of what comes of it can be read."""
    lines = text.splitlines()
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(lines))
        match chance.randrange(4):
            case 0:
                del lines[place : place + 1]
                lines = lines or [""]
            case 1:
                lines.insert(place, lines[chance.randrange(len(lines))])
            case 2:
                lines[place] = spoil(chance, lines)
            case _:
                lines[place] = lines[place].replace("a", chance.choice(PIECES), 1)
    return "\n".join(lines)


TARGETS = {
    "commands": fuzz_commands,
    "patterns": fuzz_patterns,
    "imports": fuzz_imports,
    "policies": fuzz_policies,
}


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def fuzz(name: str, seed: int, seconds: float) -> bool:
    """Try one target for a time; says whether all went well."""
    chance = random.Random(seed)
    attempt = TARGETS[name](chance)
    tried, slowest, end = 0, 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.process_time()
        try:
            attempt()
        except Exception:  # noqa: BLE001 - whatever it is, it is what was looked for
            say(f"{name}: FAILED after {tried} tries, seed {seed}")
            traceback.print_exc(limit=-6)
            return False
        took = time.process_time() - began
        tried, slowest = tried + 1, max(slowest, took)
        if took > SLOWEST_S:
            say(f"{name}: FAILED: try {tried} of seed {seed} took {took:.1f} s")
            return False
    say(f"{name}: {tried} tries, slowest {slowest * 1e3:.1f} ms, seed {seed}")
    return True


def main() -> int:
    """Fuzz what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], default=[])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chosen = given.targets or list(TARGETS)
    seed = given.seed or random.SystemRandom().randrange(1, 2**31)
    went_well = [fuzz(name, seed, given.minutes * 60 / len(chosen)) for name in chosen]
    return 0 if all(went_well) else 1


if __name__ == "__main__":
    sys.exit(main())
