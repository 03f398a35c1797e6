"""`holdfast audit`: what is taken for a file of heads."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli import audit
from holdfast.cli.app import root
from holdfast.cli.exits import ExitCode


@pytest.mark.parametrize("name", ["/dev/zero", "missing"])
def test_what_is_no_file_of_heads_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_MOST_BYTES", 1_000)
    words = ["audit", "verify", "--heads", name, "--state-dir", str(tmp_path)]
    result = CliRunner().invoke(root, words)
    assert result.exit_code == ExitCode.USAGE
    assert "session.invalid_import" in result.stderr
