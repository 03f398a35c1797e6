"""Every operation is held against what belongs to whom, or says why not."""

from __future__ import annotations

import pytest

from holdfast.identity import ROLES
from holdfast.operations import list_operations
from holdfast.operations.keys import check_known
from holdfast.operations.ownership import BEGINS, LISTED, OF_USER, OWNED_FIELDS, SHARED

TABLE = list_operations()
FOR_ALL_OWNERS = {
    "artifacts.collect",
    "artifacts.rekey",
    "artifacts.usage",
    "artifacts.verify",
    "audit.anchor",
    "audit.heads",
    "audit.verify",
    "audit.verify_trail",
    "loops.load",
    "memory.lines",
    "memory.load",
    "memory.reindex",
    "memory.stats",
    "sessions.load",
    *(name for name in TABLE if name.startswith("state.")),  # an address names any scope
    "storage.clean_up",
    "storage.mend",
    "storage.migrate",
    "storage.rebuild",
    "storage.stats",
    "storage.status",
    "triggers.add",
    "triggers.firings",
    "triggers.run",
    "usage.get",
    "usage.metrics",
}
"""Are about the records of all, unless they name one; they need `sessions:all`."""


def test_every_operation_is_in_one_class_or_names_what_it_is_about() -> None:
    classes = (BEGINS, LISTED, OF_USER, SHARED, frozenset(FOR_ALL_OWNERS))
    for name, operation in TABLE.items():
        count = sum(name in one for one in classes)
        assert count <= 1, f"{name} is in several classes"
        names_owned = OWNED_FIELDS & set(operation.signature.parameters)
        assert count or names_owned, f"{name}: say in operations/ownership.py whose it is"
    listed = set().union(*classes)
    assert listed <= set(TABLE), listed - set(TABLE)


def test_what_is_shared_names_nothing_that_belongs_to_a_subject() -> None:
    for name in SHARED:
        assert not OWNED_FIELDS & set(TABLE[name].signature.parameters), name


@pytest.mark.parametrize("role", sorted(ROLES))
def test_roles_are_made_of_scopes_that_operations_need(role: str) -> None:
    check_known(ROLES[role])
