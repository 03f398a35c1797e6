from __future__ import annotations

import stat
from pathlib import Path

import pytest

from holdfast.providers.endpoint_memory import EndpointMemory

URL = "http://127.0.0.1:1234/v1"


def test_what_was_found_out_is_there_in_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "state" / "endpoints.json"
    memory = EndpointMemory(path)
    assert memory.get(URL, "m") is None
    memory.set(URL, "m", "chat")
    memory.set_tool_mode(URL, "m", "json_schema")
    memory.set(URL, "other", "responses")
    again = EndpointMemory(path)
    assert again.get(URL, "m") == "chat"
    assert again.tool_mode(URL, "m") == "json_schema"
    assert again.get(URL, "other") == "responses"
    assert again.tool_mode(URL, "other") is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_processes_do_not_lose_what_the_other_learnt(tmp_path: Path) -> None:
    one, two = EndpointMemory(tmp_path / "e.json"), EndpointMemory(tmp_path / "e.json")
    assert one.get(URL, "a") is two.get(URL, "a") is None
    one.set(URL, "a", "chat")
    two.set(URL, "b", "responses")
    fresh = EndpointMemory(tmp_path / "e.json")
    assert (fresh.get(URL, "a"), fresh.get(URL, "b")) == ("chat", "responses")


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"\xff\xfe", b"[]", b'{"version": 99, "endpoints": []}', b'{"version": 1}',
     b'{"version":1,"endpoints":[{"base_url":"u","model":"m","api":"soap","tool_mode":"x"}]}'],
)  # fmt: skip
def test_a_damaged_file_means_finding_out_again(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "e.json"
    path.write_bytes(damage)
    memory = EndpointMemory(path)
    assert memory.get("u", "m") is None
    assert memory.tool_mode("u", "m") is None
    memory.set(URL, "m", "chat")
    assert EndpointMemory(path).get(URL, "m") == "chat"


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    memory = EndpointMemory(tmp_path / "file" / "e.json")
    memory.set(URL, "m", "chat")
    assert memory.get(URL, "m") == "chat"


def test_an_address_can_be_forgotten(tmp_path: Path) -> None:
    memory = EndpointMemory(tmp_path / "e.json")
    memory.set(URL, "m", "chat")
    memory.set("http://127.0.0.1:2/v1", "m", "chat")
    memory.forget(URL)
    assert memory.get(URL, "m") is None
    assert EndpointMemory(tmp_path / "e.json").get("http://127.0.0.1:2/v1", "m") == "chat"
