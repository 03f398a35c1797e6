"""Print the size of the packages in an environment, by what Holdfast asked for.

    python scripts/install_size.py PYTHON [--no-goal]

A package counts for the first of Holdfast's own requirements that leads to it. Compiled
files count, as pip makes them. Ends with 1 if the whole is above the goal.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

GOAL_MB = 100.0
# Runs inside the environment that is measured, with nothing but its standard library.
LISTING = r"""
import importlib.metadata as metadata, json, re
found = {}
for one in metadata.distributions():
    name = re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower()
    paths = [one.locate_file(path) for path in one.files or ()]
    size = sum(path.stat().st_size for path in paths if path.is_file())
    needs = []
    for line in one.requires or ():
        if "extra ==" in line and name != "holdfast":
            continue
        needs.append(re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", line)[0]).lower())
    found[name] = {"size": size, "needs": needs}
print(json.dumps(found))
"""


def main() -> int:
    """Measure, print, compare with the goal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("python", help="interpreter of the environment")
    parser.add_argument("--no-goal", action="store_true", help="only print")
    arguments = parser.parse_args()
    listed = subprocess.run(
        [arguments.python, "-c", LISTING], check=True, capture_output=True, text=True
    )
    found: dict[str, dict[str, object]] = json.loads(listed.stdout)
    groups = group_packages(found)
    total = 0.0
    for group, names in sorted(groups.items(), key=lambda one: -measure(found, one[1])):
        size = measure(found, names)
        total += size
        others = ", ".join(sorted(set(names) - {group}))
        sys.stdout.write(f"{size:7.1f} MB  {group}{f' (with {others})' if others else ''}\n")
    goal = "" if arguments.no_goal else f"; goal {GOAL_MB:.0f}"
    sys.stdout.write(f"{total:7.1f} MB  in {len(found)} packages{goal}\n")
    return int(total > GOAL_MB and not arguments.no_goal)


def group_packages(found: dict[str, dict[str, object]]) -> dict[str, list[str]]:
    """Return the packages by the requirement of Holdfast's that leads to them first."""
    groups: dict[str, list[str]] = {"holdfast": ["holdfast"]}
    seen = {"holdfast"}
    # The direct ones stand for themselves, also where another needs them too.
    direct = [name for name in _list_needs(found, "holdfast") if name in found]
    seen.update(direct)
    for name in dict.fromkeys(direct):
        group, waiting = [name], _list_needs(found, name)
        while waiting:
            other = waiting.pop()
            if other in found and other not in seen:
                seen.add(other)
                group.append(other)
                waiting += _list_needs(found, other)
        groups[name] = group
    if rest := [name for name in found if name not in seen]:
        groups["other"] = rest
    return groups


def _list_needs(found: dict[str, dict[str, object]], name: str) -> list[str]:
    needs = found[name]["needs"]
    assert isinstance(needs, list)
    return [str(one) for one in needs]


def measure(found: dict[str, dict[str, object]], names: list[str]) -> float:
    """Return megabytes."""
    return sum(float(str(found[name]["size"])) for name in names) / 1e6


if __name__ == "__main__":
    sys.exit(main())
