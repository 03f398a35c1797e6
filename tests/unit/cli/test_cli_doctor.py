from __future__ import annotations

import http.server
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli import doctor_kernel, doctor_machine, doctor_models
from holdfast.cli.app import root
from holdfast.cli.doctor import CHECKS
from holdfast.cli.doctor_check import Patient
from holdfast.settings import load_settings
from holdfast.testing import FakeClock


@pytest.fixture
def patient(tmp_path: Path) -> Patient:
    return _patient(tmp_path)


def _patient(home: Path, **environ: str) -> Patient:
    return Patient(loaded=load_settings(cwd=home, environ={"HOME": str(home), **environ}))


@contextmanager
def _server(status: int, body: bytes) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join(timeout=10)


def _script(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_check_says_what_it_means_and_how_to_get_it(check, patient: Patient) -> None:
    result = check(patient)
    assert result.name
    assert result.found
    assert result.status == "ok" or (result.means and result.fix)


def test_nothing_is_left_behind_in_the_state_directory(patient: Patient) -> None:
    before = sorted(patient.find_state_place().iterdir())
    assert doctor_machine.check_sqlite(patient).status == "ok"
    assert sorted(patient.find_state_place().iterdir()) == before


def test_a_place_where_sqlite_cannot_write_fails(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> sqlite3.Connection:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(sqlite3, "connect", refuse)
    assert doctor_machine.check_sqlite(patient).status == "fail"


def test_missing_programs_are_warnings(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    for check in (
        doctor_machine.check_git,
        doctor_machine.check_ripgrep,
        doctor_kernel.check_bubblewrap,
    ):
        assert check(patient).status == "warn"
        assert check(patient).found == "not installed"


def test_bubblewrap_is_really_run(
    patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _script(tmp_path, "bwrap", 'echo "setting up uid map: Permission denied" >&2; exit 1')
    refused = doctor_kernel.check_bubblewrap(patient)
    assert refused.status == "warn"
    assert "Permission denied" in refused.found
    _script(tmp_path, "bwrap", '[ "$*" = "--ro-bind / / true" ]')
    assert doctor_kernel.check_bubblewrap(patient).status == "ok"


def test_a_program_that_does_not_run_is_a_warning(
    patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _script(tmp_path, "rg", "exit 3")
    assert "does not run" in doctor_machine.check_ripgrep(patient).found


def test_a_model_server_is_recognised() -> None:
    body = json.dumps({"data": [{"id": "qwen"}, {"id": "phi"}]}).encode()
    with _server(200, body) as port:
        assert doctor_models.probe(port, timeout_s=5) == ["qwen", "phi"]


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"<html>"), (404, b"{}"), (200, b"[]"), (200, b'{"data": 1}'), (200, b"[" * 100_000)],
)
def test_another_program_on_the_port_is_not_taken_for_a_model(status: int, body: bytes) -> None:
    with _server(status, body) as port:
        assert doctor_models.probe(port, timeout_s=5) is None


def test_a_port_where_nobody_listens_is_no_model() -> None:
    with _server(200, b"") as port:
        pass
    assert doctor_models.probe(port) is None


def test_local_servers_are_listed(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    with _server(200, b'{"data": [{"id": "qwen"}]}') as port:
        monkeypatch.setattr(doctor_models, "LOCAL_SERVERS", {"Ollama": port})
        # However long this machine takes to answer itself.
        monkeypatch.setitem(doctor_models.probe.__kwdefaults__, "timeout_s", 30)
        found = doctor_models.check_local_servers(patient).found
    assert found == f"Ollama on port {port} (qwen)"


def test_a_configured_model_is_named_without_its_key(tmp_path: Path) -> None:
    check = doctor_models.check_provider(
        _patient(tmp_path, OPENAI_API_KEY="sk-planted", AGENT_MODEL="m")
    )
    assert check.status == "ok"
    assert "sk-planted" not in repr(check)
    assert doctor_models.check_provider(_patient(tmp_path)).status == "warn"


def test_a_clock_that_was_never_set_is_a_warning(tmp_path: Path) -> None:
    loaded = _patient(tmp_path).loaded
    assert doctor_machine.check_clock(Patient(loaded=loaded, clock=FakeClock(0.0))).status == "warn"


def test_the_whole_file_system_as_workspace_is_a_warning(tmp_path: Path) -> None:
    assert doctor_machine.check_workspace(_patient(tmp_path, AGENT_WORKSPACE="/")).status == "warn"


def test_a_full_disk_fails(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 10 * 1024 * 1024

    monkeypatch.setattr(doctor_machine.shutil, "disk_usage", lambda _: Usage)
    assert doctor_machine.check_space(patient).status == "fail"
    Usage.free = 500 * 1024 * 1024
    assert doctor_machine.check_space(patient).status == "warn"


def test_wrong_settings_are_a_finding_and_end_with_1(tmp_path: Path) -> None:
    result = CliRunner().invoke(root, ["doctor", "--json"], env={"ALLOW_NET": "maybe"})
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["ok"] is False
    assert [check["status"] for check in answer["checks"]] == ["ok", "fail"]


def test_doctor_prints_every_check_once(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "AGENT_STATE_DIR": str(tmp_path / "s")}
    result = CliRunner().invoke(root, ["doctor", "--json"], env=env)
    answer = json.loads(result.stdout)
    names = [check["name"] for check in answer["checks"]]
    assert result.exit_code == (0 if answer["ok"] else 1)
    assert len(names) == len(set(names)) == len(CHECKS) + 3
    lines = CliRunner().invoke(root, ["doctor", "-o", "stream-json"], env=env).stdout.splitlines()
    assert [json.loads(line)["name"] for line in lines] == names
    text = CliRunner().invoke(root, ["doctor"], env=env)
    assert all(name in text.stdout for name in names)
