"""How often redaction is wrong: markers in real code, and planted secrets that it misses.

Real code is the standard library and the installed packages, which hold no live secrets; each
marker there is a false positive. Planted ones are the corpora of the tests, filled with random
characters anew with every run. Prints both, and fails above 1 false positive per 1,000 lines or
below full recall.
"""

from __future__ import annotations

import argparse
import collections
import random
import re
import string
import sys
import sysconfig
from pathlib import Path

import yaml

from holdfast.redaction import Redactor

CORPORA = Path(__file__).parents[1] / "tests" / "corpora"
_LETTERS = {
    "a": string.ascii_letters + string.digits,
    "d": string.digits,
    "h": "0123456789abcdef",
    "B": string.ascii_uppercase + "234567",
    "U": string.ascii_uppercase + string.digits,
}


def fill(text: str, source: random.Random) -> str:
    """Return a text with random characters in its places, such as `{a40}`."""

    def choose(found: re.Match[str]) -> str:
        letters = _LETTERS[found[1]]
        while True:
            made = "".join(source.choice(letters) for _ in range(int(found[2])))
            is_mixed = not made.isalpha() and not made.isdigit()
            if is_mixed or found[1] not in "ah" or int(found[2]) < 6:
                return made

    filled = re.sub(r"\{([adhBU])(\d+)\}", choose, text)
    return filled.replace("{{", "{").replace("}}", "}")


def measure_noise(limit_lines: int) -> tuple[int, collections.Counter[str], list[str]]:
    """Return how many lines of real code were read, and which markers came up."""
    redactor, lines = Redactor(), 0
    names: collections.Counter[str] = collections.Counter()
    shown: list[str] = []
    places = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")]
    files = sorted({file for place in places for file in Path(place).rglob("*.py")})
    random.Random(7).shuffle(files)
    for file in files:
        if "holdfast" in file.parts:
            continue
        text = file.read_text("utf-8", "replace")
        lines += text.count("\n")
        clean = redactor.text(text)
        if clean != text:
            before, after = text.split("\n"), clean.split("\n")
            names.update(re.findall(r"\[redacted:([\w-]+)\]", clean))
            if len(before) == len(after):
                shown += [a for a, b in zip(before, after, strict=True) if a != b][:3]
        if lines >= limit_lines:
            break
    return lines, names, shown


def main() -> int:
    """Print what was found where nothing is, and what was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="150,000 lines instead of all")
    parser.add_argument("--show", action="store_true", help="print some of the false positives")
    given = parser.parse_args()
    lines, names, shown = measure_noise(150_000 if given.quick else sys.maxsize)
    rate = 1_000 * names.total() / lines
    sys.stdout.write(
        f"real code: {lines:,} lines, {names.total()} markers, {rate:.3f} per 1,000 lines\n"
    )
    for name, count in names.most_common(12):
        sys.stdout.write(f"  {name:24} {count}\n")
    for line in shown[:60] if given.show else ():
        sys.stdout.write(f"    {line.strip()[:140]}\n")
    source, redactor = random.Random(), Redactor()
    missed: list[str] = []
    planted = 0
    for corpus in ("secrets.yaml", "assigned_secrets.yaml"):
        for one in yaml.safe_load((CORPORA / corpus).read_text("utf-8"))["found"]:
            planted += 1
            if "[redacted:" not in redactor.text(fill(one["text"], source)):
                missed.append(one["text"])
    sys.stdout.write(f"planted: {planted}, missed: {len(missed)}\n")
    for text in missed:
        sys.stdout.write(f"  {text[:100]}\n")
    return int(rate > 1.0 or bool(missed))


if __name__ == "__main__":
    sys.exit(main())
