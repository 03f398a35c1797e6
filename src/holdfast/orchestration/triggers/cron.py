"""Times of a schedule, in a time zone; summer time as Debian's cron has it.

A time that the clock skips in spring comes right after the gap; one that it repeats in autumn
comes once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_MINUTE_S = 60


def check_schedule(cron: str, zone: str) -> None:
    """Refuse a schedule that cannot be read.

    Raises:
        ValueError: the expression or the zone is wrong; the text says how.
    """
    if len(cron.split()) != 5:
        raise ValueError("a schedule has five fields: minute hour day month weekday")
    try:
        CronSim(cron, datetime(2026, 1, 1, tzinfo=_open_zone(zone)))
    except CronSimError as error:
        raise ValueError(f"the schedule {cron!r} cannot be read: {error}") from error


def _open_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"there is no time zone {name!r}") from error


def list_newest_times(
    cron: str, zone: str, *, after: float, until: float, most: int
) -> list[float]:
    """Return the times after one moment and up to another, oldest first, at most the newest.

    However long ago `after` is, no more than `most` times are looked at.
    """
    found: list[float] = []
    start = datetime.fromtimestamp(until + _MINUTE_S, UTC).astimezone(_open_zone(zone))
    for moment in CronSim(cron, start, reverse=True):
        seconds = moment.timestamp()
        if seconds <= after or len(found) == most:
            break
        if seconds <= until:
            found.append(seconds)
    return found[::-1]


def compute_next_time(cron: str, zone: str, *, after: float) -> float | None:
    """Return the first time after a moment; `None` if there is none in the next 50 years."""
    start = datetime.fromtimestamp(after, UTC).astimezone(_open_zone(zone))
    moment = next(CronSim(cron, start), None)
    return moment.timestamp() if moment is not None else None


__all__ = ["check_schedule", "compute_next_time", "list_newest_times"]
