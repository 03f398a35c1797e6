"""Logins of browsers: kept as a digest, sealed with the cookie, ended by time, link or person."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.errors import NotFound
from holdfast.identity import ControlPlane
from holdfast.identity.logins import LINK_TTL_S, LOGIN_TTL_S, MOST_LOGINS
from holdfast.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def control(tmp_path: Path, clock: FakeClock) -> AsyncIterator[ControlPlane]:
    made = ControlPlane(tmp_path / "state", operator="default", clock=clock)
    yield made
    await made.close()


async def test_a_token_finds_its_credential_and_nothing_near_it_does(control: ControlPlane) -> None:
    login, token = await control.logins.begin("hf_secret", tenant="default", subject="ada")
    assert await control.logins.find(token) == (login, "hf_secret")
    for wrong in ("", token[:-1], token + "0", "0" * 64, login.id, "é" * 40):
        assert await control.logins.find(wrong) is None


async def test_the_store_holds_neither_token_nor_credential(
    control: ControlPlane, tmp_path: Path
) -> None:
    _, token = await control.logins.begin("hf_secret", tenant="default", subject="ada")
    await control.close()
    held = b"".join(one.read_bytes() for one in (tmp_path / "state").iterdir())
    assert token.encode() not in held and b"hf_secret" not in held


async def test_logins_and_links_end_with_time(control: ControlPlane, clock: FakeClock) -> None:
    _, token = await control.logins.begin("k", tenant="default", subject="ada")
    _, code = await control.logins.begin("k", tenant="default", subject="ada", kind="link")
    clock.advance(LINK_TTL_S)
    assert await control.logins.use_link(code) == ""
    assert await control.logins.find(token) is not None
    clock.advance(LOGIN_TTL_S)
    assert await control.logins.find(token) is None
    assert await control.logins.list_logins("default") == []


async def test_a_link_works_once_and_is_no_cookie(control: ControlPlane) -> None:
    _, token = await control.logins.begin("k", tenant="default", subject="ada")
    _, code = await control.logins.begin("k", tenant="default", subject="ada", kind="link")
    assert await control.logins.find(code) is None
    assert await control.logins.use_link(code) == "k"
    assert await control.logins.use_link(code) == ""
    assert await control.logins.use_link(token) == "", "a stolen digest of one is not the other"


async def test_another_process_ends_a_login(
    control: ControlPlane, tmp_path: Path, clock: FakeClock
) -> None:
    login, token = await control.logins.begin("k", tenant="default", subject="ada")
    assert await control.logins.find(token) is not None
    other = ControlPlane(tmp_path / "state", operator="default", clock=clock)
    with pytest.raises(NotFound):
        await other.logins.revoke(login.id, tenant="another")
    await other.logins.revoke(login.id, tenant="default")
    with pytest.raises(NotFound):
        await other.logins.revoke(login.id, tenant="default")
    await other.close()
    clock.advance(1.0)
    assert await control.logins.find(token) is None


async def test_what_was_changed_in_the_store_opens_nothing(
    control: ControlPlane, tmp_path: Path
) -> None:
    _, mine = await control.logins.begin("mine", tenant="default", subject="ada")
    await control.logins.begin("admin", tenant="default", subject="root")
    file = sqlite3.connect(tmp_path / "state" / "control.db")
    file.execute(
        "UPDATE logins SET sealed = (SELECT sealed FROM logins WHERE subject = 'root') "
        "WHERE subject = 'ada'"
    )
    file.commit()
    file.close()
    assert await control.logins.find(mine) is None


async def test_a_subject_has_so_many_logins_and_loses_all_when_erased(
    control: ControlPlane, clock: FakeClock
) -> None:
    tokens = []
    for _ in range(MOST_LOGINS + 1):
        clock.advance(0.001)
        tokens.append((await control.logins.begin("k", tenant="default", subject="ada"))[1])
    _, other = await control.logins.begin("k", tenant="default", subject="bob")
    assert await control.logins.find(tokens[0]) is None
    assert await control.logins.find(tokens[1]) is not None
    assert await control.logins.delete_subject("default", "ada") == MOST_LOGINS
    assert await control.logins.find(tokens[-1]) is None
    assert await control.logins.find(other) is not None
    assert await control.logins.end(other) is not None
    assert await control.logins.end(other) is None
    assert await control.logins.find(other) is None
