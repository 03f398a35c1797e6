"""Stores are chosen by address; packages add kinds by entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import MissingExtra, UsageError
from holdfast.journal import (
    Journal,
    MemoryStore,
    Payload,
    SqliteStore,
    StoreKind,
    list_schemes,
    list_store_places,
    open_chains,
    open_store,
    payload,
    verify,
)
from holdfast.journal.stores.registry import AddressRegistry

OFFERED = StoreKind(open=lambda address, options: MemoryStore(clock=options.clock))
NO_KIND = object()


@payload("addresses.noted", is_open=True)
class Noted(Payload, frozen=True, kw_only=True):
    """Something to keep."""

    text: str


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install packages that offer an object of this file for a scheme."""
    site = tmp_path / "site"

    def offer(scheme: str, name: str, package: str = "plugin") -> None:
        info = site / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[holdfast.stores]\n{scheme} = {__name__}:{name}\n")

    monkeypatch.syspath_prepend(str(site))
    return offer


async def keep_something(url: str, base_dir: Path) -> None:
    async with Journal(open_store(url, base_dir=base_dir)) as journal:
        await journal.append("ses_a", [Noted(text="x")], must_be_new=True)


@pytest.mark.parametrize("url", ["", "sqlite://"])
async def test_without_a_path_the_journal_is_in_the_state_directory(tmp_path: Path, url: str):
    await keep_something(url, tmp_path / "state")
    assert (tmp_path / "state" / "journal.db").is_file()
    assert list_store_places(url, base_dir=tmp_path / "state") == (tmp_path / "state",)


@pytest.mark.parametrize("slashes", ["//", "///"])
async def test_the_path_of_an_address_is_that_of_a_directory(tmp_path: Path, slashes: str):
    url = f"sqlite:{slashes}{tmp_path}/an%20other"
    await keep_something(url, tmp_path / "state")
    assert (tmp_path / "an other" / "journal.db").is_file()
    assert not (tmp_path / "state").exists()
    assert list_store_places(url, base_dir=tmp_path) == (tmp_path / "an other",)


async def test_a_journal_in_memory_is_private_and_leaves_no_file(tmp_path: Path):
    await keep_something("memory://", tmp_path)
    await keep_something("memory://", tmp_path)  # the same session, and not there yet
    assert list(tmp_path.iterdir()) == []
    assert list_store_places("memory://", base_dir=tmp_path) == ()
    assert open_chains("memory://", base_dir=tmp_path) is None


async def test_chains_are_read_where_nothing_can_be_written(tmp_path: Path):
    assert open_chains("", base_dir=tmp_path) is None
    await keep_something("", tmp_path)
    chains = open_chains("", base_dir=tmp_path)
    assert chains is not None
    assert await verify(chains) == []
    assert [head.session_id for head in await chains.heads()] == ["ses_a"]


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://user:hidden@host/db",
        "sqlite:/var/lib",
        "/var/lib/holdfast",
        "journal.db",
        "http://[hidden",
        "://hidden",
    ],
)
def test_an_unknown_scheme_is_refused_and_the_known_ones_are_named(tmp_path: Path, url: str):
    with pytest.raises(UsageError) as refused:
        open_store(url, base_dir=tmp_path)
    assert "hidden" not in str(refused.value)
    known = all(f"{scheme}://" in str(refused.value) for scheme in list_schemes())
    assert known or "no URL" in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://host/var",
        "sqlite:///var?mode=ro",
        "sqlite:///var#x",
        "sqlite:///a%00",
        "memory:///a",
    ],
)
def test_an_address_that_says_more_than_is_understood_is_refused(tmp_path: Path, url: str):
    with pytest.raises(UsageError):
        open_store(url, base_dir=tmp_path)


def test_a_package_adds_a_kind_of_store(tmp_path: Path, offer):
    before = list_schemes()
    offer("cabinet", "OFFERED")
    assert list_schemes() == tuple(sorted({"cabinet", *before}))
    assert isinstance(open_store("cabinet://third/drawer", base_dir=tmp_path), MemoryStore)


def test_a_package_cannot_replace_what_is_built_in(tmp_path: Path, offer):
    offer("sqlite", "OFFERED")
    assert isinstance(open_store("", base_dir=tmp_path), SqliteStore)


def test_two_packages_for_one_scheme_are_refused(tmp_path: Path, offer):
    offer("cabinet", "OFFERED")
    offer("cabinet", "OFFERED", package="another")
    with pytest.raises(UsageError):
        open_store("cabinet://", base_dir=tmp_path)


def test_what_is_no_kind_of_store_is_refused(tmp_path: Path, offer):
    offer("cabinet", "NO_KIND")
    with pytest.raises(UsageError):
        open_store("cabinet://", base_dir=tmp_path)


def test_a_kind_whose_package_is_not_installed_names_what_to_install():
    kinds = AddressRegistry("no.group", object, {"cabinet": "a_package_that_is_not_there:KIND"})
    with pytest.raises(MissingExtra) as refused:
        kinds.find("cabinet://")
    assert "a_package_that_is_not_there" in str(refused.value)
