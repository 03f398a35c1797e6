"""What surrounds a process is the same whatever it is started for.

Commands, hooks' scripts, MCP servers on stdio and language servers: the same hidden places, an
environment without secrets, no network, limits. Each was put together by itself before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from kinds_of_process import KINDS, SECRET_VARIABLE, House, read_probe, run_hook_script

READERS = [kind for kind in KINDS if kind != "command"]
"""Kinds that may not even write the workspace."""

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> Iterator[House]:
    monkeypatch.setenv(SECRET_VARIABLE, "sk-" + "Ab3dEf6h" * 6)
    made = House(tmp_path, kind.replace(" ", "-"))
    yield made
    made.close()


async def probe(house: House, kind: str) -> dict[str, str]:
    async with house.open() as client:
        return read_probe(await KINDS[kind](client, house))


@every_kind
async def test_a_process_reads_the_workspace_and_neither_the_records_nor_the_home(
    house: House, kind: str
) -> None:
    found = await probe(house, kind)
    assert [found[place] for place in ("workspace", "records", "home")] == ["yes", "no", "no"]


@every_kind
async def test_a_process_has_no_network_and_no_secret_of_the_environment(
    house: House, kind: str
) -> None:
    found = await probe(house, kind)
    assert (found["network"], found["secret"]) == ("no", "no")


@every_kind
async def test_a_process_cannot_write_the_policies(house: House, kind: str) -> None:
    found = await probe(house, kind)
    assert found["policies"] == "no"
    assert not (house.workspace / "policies" / "tools.yaml").exists()


@pytest.mark.parametrize("kind", READERS)
async def test_only_a_command_writes_the_workspace(house: House, kind: str) -> None:
    found = await probe(house, kind)
    assert found["create"] == "no"
    assert not list(house.workspace.glob("made-by-*"))


@every_kind
async def test_a_process_has_limits(house: House, kind: str) -> None:
    found = await probe(house, kind)
    assert found["core"] == "0"
    assert int(found["processes"]) <= 256
    assert int(found["files"]) <= 1024


@pytest.mark.parametrize("kind", ["hook script"])
async def test_subscribers_hear_which_script_ran_and_what_confined_it(
    house: House, kind: str
) -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()
    async with house.open() as client:
        await client.events.subscribe("hook.executed", heard.put)
        await run_hook_script(client, house)
        event = await asyncio.wait_for(heard.get(), 10)
    told = event.data  # type: ignore[attr-defined]
    assert (told["command"], told["exit_code"]) == (["/bin/bash", str(house.probe)], 3)
    assert told["sandbox"].endswith("/read-only")
