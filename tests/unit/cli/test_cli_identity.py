"""`holdfast keys`, `tenants` and `webhooks` on a state directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.app import root
from holdfast.cli.exits import ExitCode


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("AGENT_WORKSPACE", str(tmp_path))
    return tmp_path


def ask(*words: str) -> Result:
    return CliRunner().invoke(root, words)


def told(*words: str) -> Any:
    result = ask(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_key_is_printed_once_rotated_and_revoked() -> None:
    made = ask("keys", "create", "ci", "--role", "viewer", "--expires", "90d")
    assert made.exit_code == 0 and made.stdout.startswith("hf_")
    [key] = told("keys", "list")
    assert (key["state"], key["gives"], key["used"]) == ("valid", "viewer", "never")
    assert made.stdout.strip() not in json.dumps(key)
    new = told("keys", "rotate", key["id"], "--grace", "1h")
    assert new["secret"] != made.stdout.strip() and new["rotated_from"] == key["id"]
    assert told("keys", "revoke", key["id"])["state"] == "revoked"
    assert "Revoked" in ask("keys", "revoke", new["id"]).stdout
    assert {one["state"] for one in told("keys", "list")} == {"revoked"}
    assert ask("keys", "rotate", key["id"], "--grace", "soon").exit_code == ExitCode.USAGE
    wrong = ask("keys", "create", "ci", "--scope", "run:write")
    assert wrong.exit_code == ExitCode.USAGE and "runs:write" in wrong.stderr


def test_a_tenant_comes_and_goes(state: Path) -> None:
    assert "active" in ask("tenants", "create", "acme").stdout
    assert told("keys", "create", "k", "--role", "admin", "--tenant", "acme")["tenant"] == "acme"
    assert told("keys", "list") == []
    assert [one["name"] for one in told("tenants", "list")] == ["acme"]
    assert told("tenants", "suspend", "acme")["state"] == "suspended"
    assert told("tenants", "suspend", "acme", "--resume")["state"] == "active"
    assert "Wrote" in ask("tenants", "export", "acme", str(state / "acme.jsonl")).stdout
    assert (state / "acme.jsonl").exists()
    assert {one["tenant"] for one in told("tenants", "erase-user", "ada", "--yes")} == {
        "default",
        "acme",
    }
    assert ask("tenants", "delete", "acme").exit_code != 0  # nobody said yes
    assert told("tenants", "delete", "acme", "--yes")["state"] == "deleted"
    assert told("tenants", "list") == []


def test_a_webhook_inside_is_refused_and_one_that_is_not_there_is_not_found() -> None:
    refused = ask("webhooks", "add", "http://10.0.0.1/hook")
    assert refused.exit_code != 0 and "policy.denied" in refused.stderr
    assert told("webhooks", "list") == []
    assert told("webhooks", "deliveries", "--status", "dead") == []
    assert told("webhooks", "deliver") == {"delivered": 0}
    assert ask("webhooks", "redeliver", "msg_none").exit_code != 0
    assert ask("webhooks", "remove", "whk_none").exit_code != 0
