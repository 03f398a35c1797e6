"""List the licences of a bill of materials (CycloneDX JSON), and refuse what may not be shipped.

    python scripts/licences.py dist/holdfast-VERSION.cdx.json

Ends with 1 where a component names no licence, or one that is not in the list below: then look at
it, and add it with its reason, or drop the component.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import msgspec

# What a component of these may be combined and shipped with: permissive, or weak copyleft that
# concerns the component's own files only.
ALLOWED: Final = (
    "0BSD", "Apache-2.0", "Apache", "BSD", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "ISCL",
    "LGPL-3.0-only", "MIT", "MIT-0", "MIT-CMU", "MPL", "MPL-2.0", "PSF-2.0", "Python-2.0",
    "Unlicense", "Zlib", "ZPL-2.1",
)  # fmt: skip
# Where the metadata of a package says nothing that can be read, with what was looked at.
KNOWN: Final = {
    # Of this package only the word vectors are read, as data. They were distilled from weights
    # that are published under MIT and Apache-2.0; the package is MIT, by the LICENSE in its wheel.
    "wordllama": "MIT",
    "protobuf": "BSD-3-Clause",  # LICENSE in its wheel
}
_WORD: Final = re.compile(r"[A-Za-z0-9.+-]+")


class Licence(msgspec.Struct):
    """A licence, by its SPDX id or by a name."""

    id: str = ""
    name: str = ""


class LicenceChoice(msgspec.Struct):
    """What a component says: licences, or an expression."""

    license: Licence | None = None
    expression: str = ""


class Component(msgspec.Struct):
    """A package of the bill."""

    name: str
    version: str = ""
    licenses: list[LicenceChoice] = []


class Bill(msgspec.Struct):
    """A bill of materials."""

    components: list[Component] = []


def find_licence(component: Component) -> str:
    """Return what a component says, as one text."""
    told = [
        one.expression or (one.license.id or one.license.name if one.license else "")
        for one in component.licenses
    ]
    # A classifier repeats the licence with more words, and a text is no name.
    short = sorted({one.strip() for one in told if one and len(one) < 80 and "\n" not in one})
    return "; ".join(short) or KNOWN.get(component.name, "")


def is_allowed(licence: str) -> bool:
    """Say whether one of the alternatives that a licence names is in the list."""
    words = set(_WORD.findall(licence.replace("License ::", " ")))
    return bool(words & set(ALLOWED))


def main(arguments: list[str]) -> int:
    """Print the table; 1 if one is missing or not allowed."""
    bill = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=Bill)
    wrong = []
    lines = ["# Licences", "", "| package | version | licence |", "|---|---|---|"]
    for component in sorted(bill.components, key=lambda one: one.name.lower()):
        licence = find_licence(component)
        lines.append(f"| {component.name} | {component.version} | {licence or 'unknown'} |")
        if not is_allowed(licence):
            wrong.append(f"{component.name} {component.version}: {licence or 'no licence named'}")
    sys.stdout.write("\n".join(lines) + "\n")
    for line in wrong:
        sys.stderr.write(f"not allowed: {line}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
