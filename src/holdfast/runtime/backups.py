"""Backups of a state directory that is in use: a directory that can take its place."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import StorageDamaged, UsageError
from holdfast.journal import backup_files, list_store_places, open_chains, verify

if TYPE_CHECKING:
    from holdfast.runtime.runtime import Runtime

_LEFT_OUT = ("*.db", "*.db-*", "*.damaged-*", "*.lock", "*.tmp")
"""Databases are copied by themselves; the rest belongs to processes that run now."""


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was copied, and how much of it was checked."""

    directory: str
    databases: tuple[str, ...]
    files: int
    sessions: int
    events: int


async def back_up(
    runtime: Runtime, target: Path, progress: Callable[[int, int], None]
) -> BackupReport:
    """Copy a state directory to a new one, and check the chains of the copy.

    Databases come first and files afterwards: files are only ever added, so each one that the
    records of the copy name is there.

    Raises:
        UsageError: the target is not empty, lies inside, or the records are not in files there.
        StorageDamaged: the copy does not hold; it is left for a look.
    """
    source, url = runtime.base_dir, runtime.settings.storage.url
    target = Path(await asyncio.to_thread(os.path.abspath, target))
    if any(not place.is_relative_to(source) for place in list_store_places(url, base_dir=source)):
        raise UsageError(detail="The records lie outside of the state directory: back both up.")
    if target == source or source in target.parents:
        raise UsageError(detail="A backup must not lie in what it is one of.")
    if await asyncio.to_thread(_holds_something, target):
        raise UsageError(detail=f"{target} is there already, and not empty.")
    databases, files = await asyncio.to_thread(_copy_all, url, source, target, progress)
    chains = open_chains(url, base_dir=target)
    assert chains is not None
    heads = await chains.heads()
    if found := await verify(chains):
        raise StorageDamaged(path=str(target), detail=f"{found[0].session_id}: {found[0].problem}")
    return BackupReport(
        directory=str(target),
        databases=tuple(sorted(str(one.relative_to(target)) for one in databases)),
        files=files,
        sessions=len(heads),
        events=sum(head.session_seq for head in heads),
    )


def _holds_something(target: Path) -> bool:
    return target.exists() and (not target.is_dir() or any(target.iterdir()))


def _copy_all(
    url: str, source: Path, target: Path, progress: Callable[[int, int], None]
) -> tuple[list[Path], int]:
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    databases = backup_files(url, source, target, progress)
    count = 0
    for file in sorted(source.rglob("*")):
        if any(file.match(pattern) for pattern in _LEFT_OUT) or not _is_plain(file):
            continue
        place = target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copy2(file, place, follow_symlinks=False)
        count += 1
    return databases, count


def _is_plain(file: Path) -> bool:
    return file.is_file() and not file.is_symlink()


__all__ = ["BackupReport", "back_up"]
