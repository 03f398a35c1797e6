"""What fails is reported, without secrets, and without harm to what goes on."""

from __future__ import annotations

import gzip
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AsyncClient
from holdfast.errors import ConfigError, HoldfastError, UsageError
from holdfast.observability import (
    ErrorReport,
    Logger,
    add_error_reporter,
    flush_error_reports,
    has_error_reporters,
    report_error,
)
from holdfast.settings import Settings, load_settings
from holdfast.testing import ScriptedModel

SECRET = "hunter2-hunter2-hunter2"
RUN = "run_reported"
SEEN: list[ErrorReport] = []


def take(report: ErrorReport) -> None:
    SEEN.append(report)


def make_settings(tmp_path: Path, **chosen: object) -> Settings:
    overrides = {
        "storage.url": "memory://",
        "storage.state_dir": str(tmp_path / "state"),
        "workspace": str(tmp_path),
        **{name.replace("__", "."): value for name, value in chosen.items()},
    }
    return load_settings(overrides=overrides).settings


@pytest.fixture(autouse=True)
def nothing_seen() -> Iterator[None]:
    SEEN.clear()
    yield
    assert not has_error_reporters()


async def fail_once(settings: Settings) -> None:
    agent = Agent("helper", model=ScriptedModel(HoldfastError()))
    async with AsyncClient(settings=settings) as client:
        result = await client.runs.execute(agent, "", "hello", run_id=RUN)
    assert result.status == "failed"


async def test_failed_run_is_reported_with_its_code_and_ids(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, telemetry__errors=f"{__name__}:take")
    await fail_once(settings)
    [report] = SEEN
    assert report.event == "run.failed"
    assert report.code and report.code != report.event
    assert (report.ids["run_id"], report.ids["tenant"]) == (RUN, "default")
    assert report.ids["agent"] == "helper"
    assert len(report.ids["trace_id"]) == 32


async def test_run_that_ends_well_is_not_reported(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, telemetry__errors=f"{__name__}:take")
    async with AsyncClient(settings=settings) as client:
        await client.runs.execute(Agent("helper", model=ScriptedModel("fine")), "", "hello")
    assert SEEN == []


def test_exception_is_reported_redacted_and_without_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_PASSWORD", SECRET)
    remove = add_error_reporter(take, make_settings(tmp_path))
    password = SECRET
    try:
        raise ValueError(f"cannot log in with {password}")
    except ValueError:
        Logger("holdfast.test").exception("request failed", request_id="req_1")
    remove()
    [report] = SEEN
    assert (report.event, report.code) == ("request failed", "ValueError")
    assert report.ids == {"request_id": "req_1"}
    assert report.frames[-1].function.startswith("test_exception_is_reported")
    assert SECRET not in repr(report)


def test_reporter_that_fails_or_is_slow_harms_nothing(tmp_path: Path) -> None:
    go_on = threading.Event()

    def stubborn(report: ErrorReport) -> None:
        go_on.wait(30)
        SEEN.append(report)
        raise RuntimeError("no")

    remove = add_error_reporter(stubborn, make_settings(tmp_path))
    for number in range(3_000):
        report_error("run.failed", {"error": f"code.{number}"})
    go_on.set()
    remove()
    remove()
    # The first is with the reporter; a thousand wait; the rest is dropped, not waited for.
    assert 1_000 <= len(SEEN) <= 1_001


def test_flush_hands_over_and_later_reports_still_come(tmp_path: Path) -> None:
    remove = add_error_reporter(take, make_settings(tmp_path))
    report_error("first", {})
    flush_error_reports()
    assert [one.event for one in SEEN] == ["first"]
    report_error("second", {})
    remove()
    assert [one.event for one in SEEN] == ["first", "second"]


@pytest.mark.parametrize("wrong", ["nowhere_at_all:f", "json:nothing", "json", "json:__name__"])
async def test_reporter_that_does_not_exist_is_refused_before_any_work(
    tmp_path: Path, wrong: str
) -> None:
    settings = make_settings(tmp_path, telemetry__errors=wrong)
    with pytest.raises(UsageError):
        await fail_once(settings)


def test_project_cannot_name_a_reporter(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('[telemetry]\nerrors = "evil:run"\n', encoding="utf-8")
    with pytest.raises(ConfigError):
        load_settings(cwd=tmp_path, environ={"HOME": str(tmp_path)})


class Sentry:
    """What Sentry's server does with an envelope: it takes it."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        seen = self.events

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                _, about, *rest = body.split(b"\n")
                if json.loads(about)["type"] == "event":
                    seen.append(json.loads(rest[0]))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.dsn = f"http://abcdef@127.0.0.1:{self.server.server_port}/7"


@pytest.fixture
def sentry() -> Iterator[Sentry]:
    made = Sentry()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    thread.join(10)
    made.server.server_close()


async def test_sentry_gets_an_event_by_its_own_sdk(
    tmp_path: Path, sentry: Sentry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENTRY_DSN", sentry.dsn)
    await fail_once(make_settings(tmp_path, telemetry__errors="sentry"))
    [event] = sentry.events
    assert event["tags"]["run_id"] == RUN
    assert event["exception"]["values"][0]["type"] == event["tags"]["code"]
    assert event["release"].startswith("holdfast@")
    assert "hello" not in json.dumps(event)


async def test_sentry_without_an_address_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SENTRY_DSN", raising=False)
    with pytest.raises(UsageError):
        await fail_once(make_settings(tmp_path, telemetry__errors="sentry"))
