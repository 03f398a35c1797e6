"""What is stored under a version never changes: another field is another version.

    python tests/upgrade/test_payload_versions.py

adds new kinds and versions to `golden/payload_fields.txt`; a line that is there stays as it is.
`golden/payloads.jsonl` holds events of old versions as they stand in journals.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import msgspec
import pytest

import holdfast
from holdfast.agents import KeptRequest
from holdfast.agents.request import ClientOptions
from holdfast.journal import Payload, envelope

ROOT = Path(holdfast.__file__).parent
GOLDEN = Path(__file__).with_name("golden")
FIELDS = GOLDEN / "payload_fields.txt"


def describe(kind: type[msgspec.Struct]) -> str:
    """Return the fields of a struct by name; those without a default with a star."""
    fields = msgspec.structs.fields(kind)
    return " ".join(sorted(f"{one.encode_name}{'*' if one.required else ''}" for one in fields))


def list_fields() -> dict[str, str]:
    """Return each kind and version of ours that is written, and its fields."""
    for file in sorted(ROOT.rglob("*.py")):
        if "\n@payload(" in file.read_text():
            names = file.relative_to(ROOT.parent).with_suffix("").parts
            importlib.import_module(".".join(names))
    ours: dict[str, type[Payload]] = {
        f"{kind} {cls.schema_version}": cls
        for kind, cls in envelope._latest.items()
        if cls.__module__.startswith("holdfast.") and "testing" not in cls.__module__
    }
    found = {name: describe(cls) for name, cls in ours.items()}
    # Stored as the options of a queued run, so they belong to its version.
    queued = envelope._latest["run.queued"].schema_version
    found[f"run.queued/options {queued}"] = describe(KeptRequest)
    found[f"run.queued/options/client {queued}"] = describe(ClientOptions)
    return found


def read_golden() -> dict[str, str]:
    """Return what was written down."""
    lines = FIELDS.read_text().splitlines() if FIELDS.exists() else []
    pairs = (line.partition(": ") for line in lines)
    return {name: fields for name, _, fields in pairs}


def test_no_payload_has_other_fields_than_its_version_had() -> None:
    golden = read_golden()
    found = list_fields()
    changed = {one: found[one] for one in found if golden.get(one, found[one]) != found[one]}
    assert not changed, "give it a new version, an upcaster and a line in payloads.jsonl"
    assert not set(found) - set(golden), "run python tests/upgrade/test_payload_versions.py"


@pytest.mark.parametrize("line", (GOLDEN / "payloads.jsonl").read_text().splitlines())
def test_an_old_event_is_read_as_the_newest_class(line: str) -> None:
    old = msgspec.json.decode(line)
    envelope.list_known_kinds()
    latest = envelope._latest[old["kind"]]
    assert old["version"] < latest.schema_version
    read = envelope.decode_payload(old["kind"], old["version"], msgspec.json.encode(old["payload"]))
    assert isinstance(read, latest)
    for name, value in old["expected"].items():
        assert msgspec.to_builtins(getattr(read, name)) == value


def main() -> None:
    """Add the lines that are missing."""
    found = {**list_fields(), **read_golden()}
    FIELDS.write_text("".join(f"{name}: {found[name]}\n" for name in sorted(found)))


if __name__ == "__main__":
    main()
