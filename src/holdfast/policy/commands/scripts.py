"""Is a sed or awk script one that only prints? Small closed languages, read strictly."""

from __future__ import annotations

import re

_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\[^\n])*/I?)"
_RANGE = rf"(?:{_ADDRESS}(?:\s*,\s*(?:{_ADDRESS}|\+\d+))?\s*!?\s*)?"
_PART = r"(?:(?!(?P=mark))[^\\\n]|\\[^\n])*"
_SUBSTITUTE = rf"s(?P<mark>[/|#,:@!]){_PART}(?P=mark){_PART}(?P=mark)[gpiI0-9]*"
_PLAIN = r"(?:[pdqQ=lnNDPhHgGx]|q\d+)"
_MOST_COMMANDS = 20

# Whatever can name a file, a command or another source in awk. Strings and comparisons
# that merely contain these characters ask too: that is the price of a short list.
_AWK_RISKS = re.compile(r"system|getline|[|>@`]|fflush|close|ENVIRON|PROCINFO|include|load|/inet")


def does_sed_only_print(script: str) -> bool:
    """Say whether every command of a sed script only selects, edits and prints.

    Left out on purpose: `w`, `W`, `r`, `R`, `e`, `s///w`, `s///e`, labels, blocks, `a`, `i`,
    `c` and `y`, which are rarely needed for looking.
    """
    rest, count = script.strip(), 0
    while rest:
        count += 1
        command = re.match(rf"{_RANGE}(?:{_PLAIN}|{_SUBSTITUTE})\s*(?:;|\n|$)", rest)
        if command is None or count > _MOST_COMMANDS:
            return False
        rest = rest[command.end() :].strip()
    return count > 0


def does_awk_only_print(script: str) -> bool:
    """Say whether an awk program can only compute and print."""
    return _AWK_RISKS.search(script) is None


__all__ = ["does_awk_only_print", "does_sed_only_print"]
