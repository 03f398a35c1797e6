"""Checks of the machine: Python, SQLite, state directory, programs, locale, clock."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from holdfast.cli.doctor_check import DoctorCheck, Patient

_MIN_PYTHON: Final = (3, 11)
_MIN_SQLITE: Final = (3, 35, 0)
_MIB: Final = 1024 * 1024
_LOW_SPACE: Final = 1024 * _MIB
_NO_SPACE: Final = 50 * _MIB
_TIMEOUT_S: Final = 5
_NETWORK_FILESYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "glusterfs"}
)
# A clock before this (2026-01-01) was never set.
_EARLIEST_S: Final = 1_767_225_600
_EXTRA_LINE: Final = re.compile(r"([A-Za-z0-9._-]+).*\bextra\s*==\s*['\"]([\w-]+)['\"]")


def check_python() -> DoctorCheck:
    """Name the Python that runs."""
    found = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info[:2] >= _MIN_PYTHON:
        return DoctorCheck(name="python", status="ok", found=found)
    return DoctorCheck(
        name="python",
        status="fail",
        found=found,
        means="Holdfast needs Python 3.11 or newer.",
        fix="Install a newer Python and create the virtual environment with it.",
    )


def check_sqlite(patient: Patient) -> DoctorCheck:
    """Use SQLite in the state directory as the journal does: WAL, synced to disk."""
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < _MIN_SQLITE:
        return DoctorCheck(
            name="sqlite",
            status="fail",
            found=version,
            means="The journal needs SQLite 3.35 or newer.",
            fix="Use a Python that is built with a newer SQLite.",
        )
    place = patient.find_state_place()
    start = patient.clock.monotonic()
    try:
        mode = _write_database(place)
    except (OSError, sqlite3.Error) as error:
        return DoctorCheck(
            name="sqlite",
            status="fail",
            found=f"{version}, but it cannot write in {place}: {error}",
            means="The journal cannot be kept there.",
            fix="Choose another place with AGENT_STATE_DIR.",
        )
    took_ms = (patient.clock.monotonic() - start) * 1000
    if mode != "wal":
        return DoctorCheck(
            name="sqlite",
            status="fail",
            found=f"{version}, without write-ahead log in {place} (mode {mode})",
            means="Writers would block readers, and a crash could cost the last step.",
            fix="Choose a local disk with AGENT_STATE_DIR.",
        )
    words = "with FTS5" if _has_fts5() else "without FTS5: memory search is slower"
    return DoctorCheck(
        name="sqlite",
        status="ok" if _has_fts5() else "warn",
        found=f"{version} {words}; WAL and fsync work ({took_ms:.0f} ms)",
    )


def _write_database(place: Path) -> str:
    with tempfile.TemporaryDirectory(dir=place, prefix=".holdfast-doctor-") as folder:
        path = Path(folder) / "check.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            mode = str(database.execute("PRAGMA journal_mode=WAL").fetchone()[0])
            database.execute("PRAGMA synchronous=FULL")
            database.execute("CREATE TABLE probe (value TEXT)")
            database.execute("INSERT INTO probe VALUES ('x')")
        descriptor = os.open(path, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return mode


def _has_fts5() -> bool:
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute("CREATE VIRTUAL TABLE probe USING fts5(value)")
        except sqlite3.Error:
            return False
    return True


def check_state_dir(patient: Patient) -> DoctorCheck:
    """Look whether the state directory can be written, and on what disk it is."""
    wanted, place = patient.state_dir, patient.find_state_place()
    fix = "Choose another place with AGENT_STATE_DIR, or give this user the right to write."
    if not os.access(place, os.W_OK | os.X_OK):
        return DoctorCheck(
            name="state dir",
            status="fail",
            found=f"{place} cannot be written",
            means="Nothing can be kept, so no agent can run.",
            fix=fix,
        )
    kind = _find_filesystem(place)
    if kind in _NETWORK_FILESYSTEMS:
        return DoctorCheck(
            name="state dir",
            status="warn",
            found=f"{wanted} is on a network file system ({kind})",
            means="Locks are not reliable there; two machines could damage the journal.",
            fix="Choose a local disk with AGENT_STATE_DIR.",
        )
    found = str(wanted) if wanted.is_dir() else f"{wanted} (will be created)"
    return DoctorCheck(name="state dir", status="ok", found=found)


def _find_filesystem(place: Path) -> str:
    try:
        lines = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        if place.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def check_space(patient: Patient) -> DoctorCheck:
    """Look how much space is left for records."""
    place = patient.find_state_place()
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return DoctorCheck(
            name="disk space",
            status="fail",
            found=f"{place}: {error.strerror}",
            means="Nothing can be kept there.",
            fix="Choose another place with AGENT_STATE_DIR.",
        )
    found = f"{free // _MIB:,} MiB free for {patient.state_dir}"
    if free >= _LOW_SPACE:
        return DoctorCheck(name="disk space", status="ok", found=found)
    return DoctorCheck(
        name="disk space",
        status="fail" if free < _NO_SPACE else "warn",
        found=found,
        means="Runs stop with storage.full when the disk is full; nothing stored is lost.",
        fix="Free space, or choose another place with AGENT_STATE_DIR.",
    )


def check_workspace(patient: Patient) -> DoctorCheck:
    """Look whether agents can work in the workspace."""
    place = patient.loaded.settings.workspace
    if not os.access(place, os.R_OK | os.X_OK):
        return DoctorCheck(
            name="workspace",
            status="fail",
            found=f"{place} cannot be read",
            means="Agents see no files.",
            fix="Choose another directory with --workspace or AGENT_WORKSPACE.",
        )
    if place == Path(place.anchor):
        return DoctorCheck(
            name="workspace",
            status="warn",
            found=f"{place} is the whole file system",
            means="Agents may read everything that this user may read.",
            fix="Choose the directory of your project with --workspace or AGENT_WORKSPACE.",
        )
    if not os.access(place, os.W_OK):
        return DoctorCheck(
            name="workspace",
            status="warn",
            found=f"{place} cannot be written",
            means="Agents can read, but not change files.",
            fix="Give this user the right to write, if agents should.",
        )
    return DoctorCheck(name="workspace", status="ok", found=str(place))


def check_git(_patient: Patient) -> DoctorCheck:
    """Look for git."""
    return _make_program("git", "git", "Agents cannot see or make commits.", "apt install git")


def check_ripgrep(_patient: Patient) -> DoctorCheck:
    """Look for ripgrep."""
    means = "Searching files works, but slower."
    return _make_program("ripgrep", "rg", means, "apt install ripgrep (or: cargo install ripgrep)")


def _make_program(name: str, program: str, means: str, fix: str) -> DoctorCheck:
    path = shutil.which(program)
    if path is None:
        return DoctorCheck(name=name, status="warn", found="not installed", means=means, fix=fix)
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        found = f"{path} does not run: {type(error).__name__}"
        return DoctorCheck(name=name, status="warn", found=found, means=means, fix=fix)
    first = done.stdout.decode("utf-8", "replace").split("\n", 1)[0].strip()
    return DoctorCheck(name=name, status="ok", found=first[:100] or path)


def check_extras(_patient: Patient) -> DoctorCheck:
    """Say which optional parts are installed, from the package's own metadata."""
    try:
        lines = importlib.metadata.requires("holdfast") or []
    except importlib.metadata.PackageNotFoundError:
        return DoctorCheck(
            name="extras",
            status="ok",
            found="unknown: holdfast runs from its source tree, not as an installed package",
        )
    needed: dict[str, list[str]] = {}
    for line in lines:
        found = _EXTRA_LINE.match(line)
        if found and found[1] != "holdfast":
            needed.setdefault(found[2], []).append(found[1])
    there = [name for name, packages in needed.items() if all(map(_is_installed, packages))]
    missing = [name for name in needed if name not in there]
    return DoctorCheck(
        name="extras",
        status="ok",
        found=f"installed: {', '.join(there) or 'none'}; not installed: "
        f"{', '.join(missing) or 'none'}",
        fix=f"pip install 'holdfast[{','.join(missing)}]'" if missing else "",
    )


def check_memory_search(_patient: Patient) -> DoctorCheck:
    """Look whether memories are found by meaning, or by their words only."""
    lacking = [name for name in ("numpy", "tokenizers", "wordllama") if not _is_installed(name)]
    if not lacking:
        found = f"by words and by meaning (wordllama {importlib.metadata.version('wordllama')})"
        return DoctorCheck(name="memory search", status="ok", found=found)
    return DoctorCheck(
        name="memory search",
        status="warn",
        found=f"by words only: {', '.join(lacking)} not installed",
        means="Memories are found by their words, not by other words of the same meaning.",
        fix="pip install 'holdfast[memory]'",
    )


def check_uvloop(_patient: Patient) -> DoctorCheck:
    """Look for the faster event loop."""
    if _is_installed("uvloop"):
        return DoctorCheck(name="uvloop", status="ok", found=importlib.metadata.version("uvloop"))
    return DoctorCheck(
        name="uvloop",
        status="warn",
        found="not installed",
        means="The event loop costs more CPU; everything works.",
        fix="pip install 'holdfast[fast]'",
    )


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def check_locale(_patient: Patient) -> DoctorCheck:
    """Look whether text of all languages can be printed and stored."""
    output = (sys.stdout.encoding or "unknown").lower()
    files = sys.getfilesystemencoding().lower()
    found = f"output {output}, file names {files}"
    if output.replace("-", "") == files.replace("-", "") == "utf8":
        return DoctorCheck(name="locale", status="ok", found=found)
    return DoctorCheck(
        name="locale",
        status="warn",
        found=found,
        means="Some characters are printed as escapes.",
        fix="Set LANG=C.UTF-8 (or PYTHONUTF8=1).",
    )


def check_clock(patient: Patient) -> DoctorCheck:
    """Compare the clock with a date that has passed."""
    if patient.clock.now() >= _EARLIEST_S:
        return DoctorCheck(name="clock", status="ok", found="set")
    return DoctorCheck(
        name="clock",
        status="warn",
        found="it is set to a time before 2026",
        means="Times in records are wrong, and TLS certificates are refused.",
        fix="Set the clock, for example with timedatectl set-ntp true.",
    )
