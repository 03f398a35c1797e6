"""API keys: shown once, kept as a digest, valid until they expire or are revoked."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.errors import (
    AlreadyExists,
    NotFound,
    SchemaTooNew,
    StorageDamaged,
    UsageError,
)
from holdfast.identity import ControlPlane, check_subject, expand_roles, is_subject
from holdfast.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def control(tmp_path: Path, clock: FakeClock) -> AsyncIterator[ControlPlane]:
    made = ControlPlane(tmp_path / "state", operator="default", clock=clock)
    yield made
    await made.close()


async def test_a_key_is_known_by_its_secret_and_by_nothing_near_it(control: ControlPlane) -> None:
    made = await control.keys.create("ci", tenant="default", roles=["viewer"], subject="ada")
    found = await control.keys.verify(made.secret)
    assert found is not None and (found.id, found.subject) == (made.key.id, "ada")
    for wrong in ("", "hf_", made.secret[:-1], made.secret + "0", made.secret.upper(),
                  made.secret[:-1] + ("0" if made.secret[-1] != "0" else "1"), made.key.prefix,
                  f" {made.secret}", "hf_" + "0" * 56, "x" * 100_000):  # fmt: skip
        assert await control.keys.verify(wrong) is None


async def test_the_secret_is_nowhere_on_the_disk_and_the_file_is_private(
    control: ControlPlane, tmp_path: Path
) -> None:
    made = await control.keys.create("ci", tenant="default", roles=["viewer"])
    await control.close()
    files = [one for one in (tmp_path / "state").rglob("*") if one.is_file()]
    assert files
    for file in files:
        assert made.secret.removeprefix(made.key.prefix).encode() not in file.read_bytes()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_key_ends_when_its_time_is_over(control: ControlPlane, clock: FakeClock) -> None:
    made = await control.keys.create("ci", tenant="default", roles=["viewer"], ttl_s=60)
    clock.advance(59)
    assert await control.keys.verify(made.secret) is not None
    clock.advance(1)
    assert await control.keys.verify(made.secret) is None


async def test_a_revoked_key_stays_revoked(control: ControlPlane) -> None:
    made = await control.keys.create("ci", tenant="default", roles=["viewer"])
    assert await control.keys.verify(made.secret) is not None
    ended = await control.keys.revoke(made.key.id, tenant="default")
    assert await control.keys.verify(made.secret) is None
    assert (await control.keys.revoke(made.key.id, tenant="default")).revoked_at == ended.revoked_at
    with pytest.raises(UsageError):
        await control.keys.rotate(made.key.id, tenant="default")


async def test_another_process_hears_of_a_revocation_within_a_second(
    control: ControlPlane, clock: FakeClock
) -> None:
    other = ControlPlane(control.directory, operator="default", clock=clock)
    made = await control.keys.create("ci", tenant="default", roles=["viewer"])
    assert await other.keys.verify(made.secret) is not None
    await control.keys.revoke(made.key.id, tenant="default")
    clock.advance(1.0)
    assert await other.keys.verify(made.secret) is None
    await other.close()


async def test_a_rotated_key_has_the_same_rights_and_the_old_one_its_grace(
    control: ControlPlane, clock: FakeClock
) -> None:
    old = await control.keys.create(
        "ci", tenant="default", roles=["viewer"], scopes=["keys:read"], subject="ada", ttl_s=1000
    )
    clock.advance(500)
    new = await control.keys.rotate(old.key.id, tenant="default", grace_s=60)
    assert (new.key.subject, new.key.all_scopes) == ("ada", old.key.all_scopes)
    assert new.key.rotated_from == old.key.id
    assert new.key.expires_at == clock.now() + 1000
    assert await control.keys.verify(old.secret) is not None
    clock.advance(60)
    assert await control.keys.verify(old.secret) is None
    assert await control.keys.verify(new.secret) is not None
    again = await control.keys.rotate(new.key.id, tenant="default")
    assert await control.keys.verify(new.secret) is None
    assert await control.keys.verify(again.secret) is not None


async def test_when_a_key_was_used_last_is_noted(control: ControlPlane, clock: FakeClock) -> None:
    made = await control.keys.create("ci", tenant="default", roles=["viewer"])
    for _ in range(3):
        await control.keys.verify(made.secret)
    [key] = await control.keys.list_keys("default")
    assert key.last_used_at == clock.now()


async def test_a_key_of_another_tenant_is_not_there(control: ControlPlane) -> None:
    made = await control.keys.create("ci", tenant="acme", roles=["admin"])
    assert await control.keys.list_keys("default") == []
    for ask in (control.keys.get, control.keys.revoke, control.keys.rotate):
        with pytest.raises(NotFound):
            await ask(made.key.id, tenant="default")


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "x" * 101},
        {"name": "a\nb"},
        {"roles": []},
        {"roles": ["king"]},
        {"scopes": ["runs"]},
        {"scopes": ["runs:write:"]},
        {"scopes": ["Runs:write"]},
        {"subject": "owner"},
        {"subject": "Local"},
        {"subject": "a b"},
        {"ttl_s": 0},
        {"ttl_s": float("inf")},
    ],
)
async def test_a_key_that_cannot_be_meant_is_refused(
    control: ControlPlane, wrong: dict[str, object]
) -> None:
    asked = {"name": "ci", "roles": ["viewer"], **wrong}
    with pytest.raises(UsageError):
        await control.keys.create(str(asked.pop("name")), tenant="t", **asked)  # type: ignore[arg-type]
    assert await control.keys.list_keys("t") == []


async def test_tenants_come_and_go_and_their_names_are_used_up(control: ControlPlane) -> None:
    tenants = control.tenants
    await tenants.create("acme", note="n")
    assert await tenants.is_active("acme") and await tenants.is_active("default")
    with pytest.raises(AlreadyExists):
        await tenants.create("acme")
    with pytest.raises(AlreadyExists):
        await tenants.create("default")
    for wrong in ("", "A", "a/b", "..", ".", "a" * 64, "-a", "a b"):
        with pytest.raises(UsageError):
            await tenants.create(wrong)
    assert (await tenants.set_state("acme", "suspended")).state == "suspended"
    assert not await tenants.is_active("acme")
    await tenants.set_state("acme", "active")
    made = await control.keys.create("k", tenant="acme", roles=["admin"])
    await tenants.set_state("acme", "deleted")
    assert not await tenants.is_active("acme") and await tenants.list_tenants() == []
    assert await control.keys.list_keys("acme") == [] and made.key.tenant == "acme"
    with pytest.raises(NotFound):
        await tenants.get("acme")
    with pytest.raises(AlreadyExists):
        await tenants.create("acme")
    assert not await tenants.is_active("nowhere")


async def test_a_foreign_or_newer_file_is_left_as_it_is(tmp_path: Path) -> None:
    place = tmp_path / "control.db"
    with sqlite3.connect(place) as connection:
        connection.execute("CREATE TABLE other (x)")
    connection.close()
    control = ControlPlane(tmp_path, operator="default")
    with pytest.raises(StorageDamaged):
        await control.tenants.list_tenants()
    place.unlink()
    await control.tenants.create("acme")
    await control.close()
    with sqlite3.connect(place) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(SchemaTooNew):
        await ControlPlane(tmp_path, operator="default").tenants.list_tenants()
    place.write_bytes(b"no database at all, but long enough to look like one" * 20)
    with pytest.raises(StorageDamaged):
        await ControlPlane(tmp_path, operator="default").tenants.list_tenants()


def test_roles_and_subjects() -> None:
    assert "sessions:all" not in expand_roles(["developer"])
    assert expand_roles(["viewer"], ["runs:write"]) > expand_roles(["viewer"])
    assert not [one for one in expand_roles(["viewer"]) if one.endswith((":write", ":admin"))]
    with pytest.raises(UsageError):
        expand_roles(["nobody"])
    assert is_subject("auth0|123") and is_subject("ada@example.com") and not is_subject(7)
    assert check_subject("ada") == "ada"
