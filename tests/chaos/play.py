"""Break Holdfast on purpose, and say whether what must hold did hold.

    ./scripts/chaos                        every scenario
    ./scripts/chaos outage clocks          some of them
    ./scripts/chaos --to evidence.json     and write what was seen to a file

Everything runs on 127.0.0.1 and in a temporary directory. It ends with 1 where something did not
hold, or where a scenario could not be played here; the table says which.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
import tempfile
import time
import traceback
from pathlib import Path

import msgspec
from chaos_scenarios import PATIENCE_S, SCENARIOS, Held

from holdfast import __version__


async def play_scenario(name: str) -> dict[str, object]:
    """Play one scenario in a directory of its own, and return what was seen."""
    began = time.perf_counter()
    problem = ""
    held: list[Held] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as place:
        try:
            async with asyncio.timeout(2 * PATIENCE_S):
                held = await SCENARIOS[name](Path(place))
        except Exception as error:
            traceback.print_exc()
            problem = f"{type(error).__name__}: {error}"
    return {
        "scenario": name,
        "about": (SCENARIOS[name].__doc__ or "").strip(),
        "seconds": round(time.perf_counter() - began, 1),
        "is_held": not problem and all(one.is_held for one in held),
        "problem": problem,
        "must_hold": msgspec.to_builtins(held),
    }


def tell(found: dict[str, object]) -> None:
    """Print one scenario as rows of the table."""
    sys.stdout.write(f"\n{found['scenario']}: {found['about']} ({found['seconds']} s)\n")
    for one in msgspec.convert(found["must_hold"], list[Held]):
        seen = "" if one.is_held else f"   seen: {one.seen[:300]}"
        sys.stdout.write(f"  {'held  ' if one.is_held else 'BROKEN'}  {one.must}{seen}\n")
    if found["problem"]:
        sys.stdout.write(f"  NOT PLAYED  {found['problem']}\n")
    sys.stdout.flush()


def main() -> int:
    """Play, print, write the evidence."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--to", type=Path, metavar="FILE", help="write the evidence as JSON")
    arguments = parser.parse_args()
    if unknown := set(arguments.scenario) - set(SCENARIOS):
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}")
    found = []
    for name in arguments.scenario or SCENARIOS:
        found.append(asyncio.run(play_scenario(name)))
        tell(found[-1])
    broken = [str(one["scenario"]) for one in found if not one["is_held"]]
    if arguments.to is not None:
        arguments.to.parent.mkdir(parents=True, exist_ok=True)
        evidence = {
            "command": "./scripts/chaos",
            "version": __version__,
            "python": platform.python_version(),
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "is_held": not broken,
            "scenarios": found,
        }
        arguments.to.write_text(json.dumps(evidence, indent=2) + "\n")
    sys.stdout.write(f"\n{len(found) - len(broken)} of {len(found)} held"
                     f"{': broken ' + ', '.join(broken) if broken else ''}\n")  # fmt: skip
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
