"""Prove that values of every version of a state schema can still be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from holdfast.errors import UsageError
from holdfast.state import StateSchema

T = TypeVar("T")


def check_migrations(schema: StateSchema[T], samples: Mapping[int, Any]) -> dict[int, T]:
    """Return what samples of all versions become; keep the samples as long as the schema lives.

    `samples` has one JSON value for every version, the newest too, as it was stored then.

    Raises:
        UsageError: a migration or a sample is missing.
        StateUnreadable: a sample of an old version cannot be read any more.
    """
    missing = schema.missing()
    if missing:
        versions = ", ".join(map(str, missing))
        raise UsageError(detail=f"{schema.name} has no migration from version {versions}.")
    wanted = set(range(1, schema.version + 1))
    if set(samples) != wanted:
        raise UsageError(
            detail=f"{schema.name} needs a sample of each of its versions 1 to {schema.version}."
        )
    made = {number: schema.decode(samples[number], number) for number in sorted(samples)}
    for number, value in made.items():
        again = schema.decode(schema.encode(value), schema.version)
        if again != value:
            raise UsageError(detail=f"The sample of version {number} changes when it is written.")
    return made


__all__ = ["check_migrations"]
