"""Reports say what the evidence says, and licences that may not be shipped are refused."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {
    "release-checklist": "write_checklist",
    "compatibility-matrix": "write_matrix",
    "ga-readiness": "write_readiness",
    "gap-analysis": "write_gaps",
}


@pytest.fixture(scope="module")
def evidence() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "release_evidence.py"))


@pytest.mark.parametrize("name", PAGES)
def test_a_report_is_what_its_evidence_gives(name: str, evidence: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "reports" / f"{name}.md").read_text(encoding="utf-8")
    made = evidence[PAGES[name]](evidence["read_evidence"]())
    assert page == made, "run ./scripts/release-evidence report"


def test_nothing_is_ready_without_evidence_or_with_a_failure(evidence: dict[str, Any]) -> None:
    write, steps = evidence["write_readiness"], evidence["STEPS"]
    seen = {
        name: evidence["Evidence"](
            name=name, command=step.command, exit_code=0, seconds=1.0, commit="c1",
            time="t", python="p", system="s", tail=(),
        )
        for name, step in steps.items()
    }  # fmt: skip
    assert "is **ready**" in write(seen)
    assert "is **not ready**" in write({})
    assert "is **not ready**" in write(seen | {"chaos": failed(seen["chaos"])})
    assert "is **not ready**" in write(seen | {"soak": other_commit(seen["soak"])})


def failed(found: Any) -> Any:
    return type(found)(**{**fields(found), "exit_code": 1})


def other_commit(found: Any) -> Any:
    return type(found)(**{**fields(found), "commit": "c2"})


def fields(found: Any) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__struct_fields__}


@pytest.mark.parametrize(
    ("licences", "code"),
    [
        ([{"license": {"id": "MIT"}}], 0),
        ([{"expression": "Apache-2.0 OR GPL-2.0-only"}], 0),
        ([{"license": {"name": "License :: OSI Approved :: BSD License"}}], 0),
        ([{"license": {"id": "GPL-3.0-only"}}], 1),
        ([], 1),
    ],
)
def test_a_licence_that_may_not_be_shipped_ends_the_release(
    licences: list[object], code: int, tmp_path: Path
) -> None:
    bill = tmp_path / "bill.json"
    bill.write_text(json.dumps({"components": [{"name": "a", "licenses": licences}]}))
    ended = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "licences.py"), str(bill)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    assert ("not allowed: a" in ended.stderr) is bool(code)
