"""No secret reaches a line of the log, whoever writes it and however it fails."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from holdfast.observability import Logger, bind_log_fields, configure_logs
from holdfast.settings import load_settings
from holdfast.testing import FakeClock

SECRET = "hunter2-hunter2-hunter2"
KEY = "sk-proj-" + "Ab1" * 16


class Hiding:
    """An object whose `repr` tells more than its `str`."""

    def __str__(self) -> str:
        return "nothing here"

    def __repr__(self) -> str:
        return f"Hiding({SECRET})"


@pytest.fixture(params=["text", "json"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def log(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    monkeypatch.setenv("MY_PASSWORD", SECRET)
    monkeypatch.chdir(tmp_path)
    settings = load_settings(overrides={"log.level": "info", "log.format": form}).settings
    stream = io.StringIO()
    restore = configure_logs(settings, stream=stream, clock=FakeClock())
    yield stream
    restore()


def fail() -> None:
    raise ValueError(f"cannot log in with {SECRET}")


def in_structlog() -> None:
    structlog.get_logger("holdfast.test").warning(
        f"using {SECRET}", key=KEY, nested={"a": [SECRET]}, hiding=Hiding(), raw=SECRET.encode()
    )


def in_structlog_exception() -> None:
    try:
        fail()
    except ValueError:
        structlog.get_logger("holdfast.test").exception("failed", cause=SECRET)


def in_our_logger() -> None:
    with bind_log_fields(request=SECRET):
        Logger("holdfast.test").warning(f"using {SECRET}", key=KEY, nested={"a": [SECRET]})


def in_our_exception() -> None:
    try:
        fail()
    except ValueError:
        Logger("holdfast.test").exception("failed", cause=SECRET)


def in_foreign_library() -> None:
    logging.getLogger("foreign").warning("token %s %r", SECRET, {"k": KEY}, extra={"auth": SECRET})


def in_foreign_exception() -> None:
    try:
        fail()
    except ValueError:
        logging.getLogger("foreign").exception("failed")


def in_foreign_stack() -> None:
    logging.getLogger("foreign").error("where %s", SECRET, stack_info=True)


def in_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn(f"old way with {SECRET}", stacklevel=1)


def in_thread() -> None:
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join(10)


def in_main() -> None:
    try:
        fail()
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)


def in_bad_format() -> None:
    # pytest listens on the root too, and would raise.
    root = logging.getLogger()
    root.handlers = [one for one in root.handlers if type(one).__module__.startswith("holdfast")]
    logging.getLogger("foreign").warning("%d is no number", SECRET)


@pytest.mark.parametrize(
    "write",
    [
        in_structlog,
        in_structlog_exception,
        in_our_logger,
        in_our_exception,
        in_foreign_library,
        in_foreign_exception,
        in_foreign_stack,
        in_warning,
        in_thread,
        in_main,
        in_bad_format,
    ],
)
def test_no_secret_is_logged(
    log: io.StringIO,
    form: str,
    write: Callable[[], None],
    capfd: pytest.CaptureFixture[str],
) -> None:
    write()
    text = log.getvalue()
    assert text
    shown = capfd.readouterr()
    for secret in (SECRET, KEY):
        assert secret not in text
        assert secret not in shown.out + shown.err
    if form == "json" and write is not in_bad_format:
        [entry] = [json.loads(line) for line in text.splitlines()]
        assert {"message", "log.level", "@timestamp"} <= set(entry)


def test_level_of_the_settings_holds_for_everybody(log: io.StringIO) -> None:
    structlog.get_logger("holdfast.test").debug("quiet")
    logging.getLogger("foreign").debug("quiet")
    assert log.getvalue() == ""


def test_no_line_can_steer_a_terminal(log: io.StringIO) -> None:
    logging.getLogger("foreign").warning("\x1b[2Jgone\r \u202eevil")
    assert not {"\x1b", "\r", "\u202e"} & set(log.getvalue())


def test_stream_that_is_closed_breaks_nothing(log: io.StringIO) -> None:
    log.close()
    logging.getLogger("foreign").warning("nobody reads this")


def test_everything_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    structlog.reset_defaults()
    before = (list(logging.getLogger().handlers), sys.excepthook, threading.excepthook)
    settings = load_settings().settings
    first = configure_logs(settings, stream=io.StringIO())
    second = configure_logs(settings, stream=io.StringIO())
    second()
    assert structlog.is_configured()
    first()
    assert not structlog.is_configured()
    assert (list(logging.getLogger().handlers), sys.excepthook, threading.excepthook) == before


def test_unconfigured_library_never_writes_to_standard_output() -> None:
    code = "from holdfast.observability import Logger; Logger('holdfast.x').warning('odd', a=1)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == ""
    assert done.stderr == "odd a=1\n"


def test_set_up_of_the_application_gets_the_line_with_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with bind_log_fields(request_id="r1"):
        Logger("holdfast.x").warning("asked", tenant="acme")
        Logger("holdfast.x").warning("again")
    Logger("holdfast.x").warning("outside")
    assert [one.getMessage() for one in caplog.records] == [
        "asked request_id=r1 tenant=acme",
        "again request_id=r1",
        "outside",
    ]
    assert {one.filename for one in caplog.records} == {Path(__file__).name}


def test_bound_fields_stand_in_lines_of_all_libraries(log: io.StringIO, form: str) -> None:
    with bind_log_fields(request_id="r1"):
        logging.getLogger("foreign").warning("theirs")
        structlog.get_logger("app").warning("of the application")
        Logger("holdfast.test").warning("ours", tenant="acme")
    lines = log.getvalue().splitlines()
    assert len(lines) == 3
    if form == "json":
        entries = [json.loads(line) for line in lines]
        assert [one["http.request.id"] for one in entries] == ["r1"] * 3
        assert entries[2]["message"] == "ours" and entries[2]["organization.id"] == "acme"
    else:
        assert all("request_id=r1" in line for line in lines)
