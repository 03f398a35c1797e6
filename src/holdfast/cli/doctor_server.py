"""Checks of a server from outside: `holdfast doctor --server URL`.

What a client needs is asked for as a client asks for it: without redirects, and with the key only
where others cannot read it.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import ssl
from collections.abc import Callable
from email.message import Message
from typing import Final
from urllib.parse import urlsplit

from holdfast._version import __version__
from holdfast.cli.doctor_check import DoctorCheck, Patient
from holdfast.client import check_address, choose_api_key
from holdfast.errors import UsageError

_TIMEOUT_S: Final = 10.0
_MAX_ANSWER: Final = 8 * 1024 * 1024
_SKEW_S: Final = 30.0
_MANY_WAITING: Final = 100


class ServerAnswer:
    """What a server said, or why it said nothing."""

    def __init__(
        self, status: int, body: bytes, headers: Message | None = None, problem: str = ""
    ) -> None:
        """Take status and body; `problem` says why there are none."""
        self.status = status
        self.body = body
        self.headers = headers
        self.problem = problem

    def read_field(self, name: str) -> object:
        """Return a field of the JSON that came, or None."""
        try:
            parsed = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return parsed.get(name) if isinstance(parsed, dict) else None


class ServerPatient:
    """A server that is examined."""

    def __init__(self, patient: Patient, url: str) -> None:
        """Take the settings, and the address.

        Raises:
            UsageError: the key would be sent where others could read it.
        """
        self.url = url.rstrip("/")
        self.key = choose_api_key(self.url, patient.loaded.settings)
        check_address(self.url, has_key=bool(self.key), allows_plain_http=False)
        self.clock = patient.clock

    def ask(self, path: str, *, with_key: bool = True) -> ServerAnswer:
        """Ask once; whatever goes wrong is told, not raised."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(
                host, parts.port, timeout=_TIMEOUT_S, context=context
            )
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=_TIMEOUT_S)
        headers = {"Accept": "application/json, text/plain"}
        if with_key and self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        try:
            connection.request("GET", parts.path + path, headers=headers)
            answer = connection.getresponse()
            return ServerAnswer(answer.status, answer.read(_MAX_ANSWER), answer.headers)
        except ssl.SSLCertVerificationError as error:
            return ServerAnswer(
                0, b"", problem=f"its certificate is not believed: {error.verify_message}"
            )
        except (OSError, http.client.HTTPException) as error:
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return ServerAnswer(0, b"", problem=str(said))
        finally:
            connection.close()


def check_reach(server: ServerPatient) -> DoctorCheck:
    """Look whether the process answers."""
    start = server.clock.monotonic()
    answer = server.ask("/health", with_key=False)
    took_ms = (server.clock.monotonic() - start) * 1000
    if answer.status == 200 and answer.read_field("status") == "ok":
        return DoctorCheck(name="server", status="ok", found=f"{server.url} ({took_ms:.0f} ms)")
    if answer.status == 0:
        return DoctorCheck(
            name="server",
            status="fail",
            found=f"{server.url} does not answer: {answer.problem}",
            means="No client reaches it, or something on the way stops them.",
            fix="Look whether it runs (`systemctl status`, `docker compose ps`), where it listens "
            "(`server.host`, `server.port`), and at its log.",
        )
    return DoctorCheck(
        name="server",
        status="fail",
        found=f"{server.url}/health answers with {answer.status}, and not as Holdfast does",
        means="Another program listens there, a proxy is in between, or it does not accept the "
        "name by which it is addressed.",
        fix="Check the address, `server.allowed_hosts`, and the path that the proxy adds.",
    )


def check_ready(server: ServerPatient) -> DoctorCheck:
    """Look whether it takes requests: the store answers, and it is not stopping."""
    answer = server.ask("/ready", with_key=False)
    said = answer.read_field("status") or answer.problem or f"status {answer.status}"
    if answer.status == 200:
        return DoctorCheck(name="ready", status="ok", found=str(said))
    return DoctorCheck(
        name="ready",
        status="fail",
        found=str(said),
        means="Requests are refused, and load balancers leave it out.",
        fix="`draining`: it is being stopped. `the store does not answer`: look at the disk or the "
        "database of `storage.url`, and for `storage.` in its log.",
    )


def check_version(server: ServerPatient) -> DoctorCheck:
    """Compare versions."""
    found = server.ask("/version", with_key=False).read_field("version")
    if found == __version__:
        return DoctorCheck(name="version", status="ok", found=f"{found}, as here")
    return DoctorCheck(
        name="version",
        status="warn",
        found=f"{found or 'unknown'} there, {__version__} here",
        means="Operations that only one of them knows are refused.",
        fix="Install the same version on both sides.",
    )


def check_time(server: ServerPatient) -> DoctorCheck:
    """Compare clocks, to the second."""
    answer = server.ask("/health", with_key=False)
    written = answer.headers.get("date", "") if answer.headers is not None else ""
    try:
        there = email.utils.parsedate_to_datetime(written).timestamp()
    except (TypeError, ValueError):
        return DoctorCheck(name="time", status="ok", found="it does not say its time")
    skew = there - server.clock.now()
    if abs(skew) <= _SKEW_S:
        return DoctorCheck(name="time", status="ok", found=f"within {_SKEW_S:.0f} s of ours")
    return DoctorCheck(
        name="time",
        status="warn",
        found=f"its clock is {abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}",
        means="Tokens (JWT), signed links and schedules are judged by its clock.",
        fix="Let both machines set their clocks by NTP.",
    )


def check_key(server: ServerPatient) -> DoctorCheck:
    """Look whether the key is taken, and what it may do at least."""
    answer = server.ask("/v1/runs?limit=1")
    if answer.status == 200:
        return DoctorCheck(name="key", status="ok", found="it is taken, and may read runs")
    if answer.status == 403:
        return DoctorCheck(
            name="key",
            status="warn",
            found="it is taken, and may not read runs",
            means="What needs the scope runs:read is refused.",
            fix="`holdfast keys list` on the server shows what a key may do.",
        )
    said = answer.problem or answer.read_field("detail") or f"status {answer.status}"
    return DoctorCheck(
        name="key",
        status="fail",
        found=f"not taken: {said}" if server.key else "none is set",
        means="Every operation is refused.",
        fix="Set HOLDFAST_API_KEY (or HOLDFAST_API_KEY_FILE); `holdfast keys create NAME` on the "
        "server makes one.",
    )


def check_policies(server: ServerPatient) -> DoctorCheck:
    """Look whether newer policies were refused."""
    answer = server.ask("/v1/policies/status")
    if answer.status == 422:
        return DoctorCheck(
            name="policies",
            status="fail",
            found=str(answer.read_field("detail") or "they are not valid")[:400],
            means="No run begins until they are corrected.",
            fix="Mend the files on the server, then `holdfast policies reload`.",
        )
    if answer.status != 200:
        return DoctorCheck(name="policies", status="ok", found="this key may not read them")
    refused = answer.read_field("refused")
    if isinstance(refused, list) and refused:
        return DoctorCheck(
            name="policies",
            status="warn",
            found=f"newer files were refused: {str(refused[0])[:200]}",
            means="The policies from before are in force.",
            fix="Mend the files, check them with `holdfast policies validate`, then `holdfast "
            "policies reload`.",
        )
    version = str(answer.read_field("version") or "")[:12]
    return DoctorCheck(name="policies", status="ok", found=f"in force: {version or 'defaults'}")


def check_load(server: ServerPatient) -> DoctorCheck:
    """Read the metrics: runs that wait, errors of the store."""
    answer = server.ask("/metrics")
    if answer.status != 200:
        found = "this key may not read metrics" if answer.status in (401, 403) else "no metrics"
        return DoctorCheck(name="load", status="ok", found=found)
    said = answer.body.decode("utf-8", "replace")
    waiting = read_metric(said, 'holdfast_runs_waiting{status="queued"}')
    approvals = read_metric(said, "holdfast_approvals_waiting")
    found = f"{waiting:.0f} runs wait, {approvals:.0f} approvals wait"
    if waiting < _MANY_WAITING:
        return DoctorCheck(name="load", status="ok", found=found)
    return DoctorCheck(
        name="load",
        status="warn",
        found=found,
        means="More runs are started than are executed.",
        fix="Add workers or slots; look for `queue.grows` and `model.retried` in the log.",
    )


def read_metric(text: str, name: str) -> float:
    """Return the value of a metric, named with its labels; 0 where it is not there."""
    for line in text.splitlines():
        if line.startswith(f"{name} "):
            try:
                return float(line.rpartition(" ")[2])
            except ValueError:
                return 0.0
    return 0.0


SERVER_CHECKS: Final[tuple[Callable[[ServerPatient], DoctorCheck], ...]] = (
    check_ready,
    check_version,
    check_time,
    check_key,
    check_policies,
    check_load,
)


def examine_server(patient: Patient, url: str) -> list[DoctorCheck]:
    """Return what is right and wrong with a server; the rest is asked only if it answers."""
    try:
        server = ServerPatient(patient, url)
    except UsageError as error:
        return [
            DoctorCheck(
                name="server",
                status="fail",
                found=str(error),
                means="The server is not asked.",
                fix=error.hint or "Use https://.",
            )
        ]
    first = check_reach(server)
    if first.status == "fail":
        return [first]
    return [first, *(check(server) for check in SERVER_CHECKS)]


__all__ = ["SERVER_CHECKS", "ServerAnswer", "ServerPatient", "examine_server", "read_metric"]
