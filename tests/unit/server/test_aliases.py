"""Addresses that people know from elsewhere answer as those of `/v1` do."""

from __future__ import annotations

from served import Running

from holdfast.operations.routes import ALIASES, ROUTES


async def test_every_alias_is_one_of_an_operation_and_takes_its_parameters() -> None:
    for (_, path), name in ALIASES.items():
        own = set(ROUTES[name].parameters)
        assert {word[1:-1] for word in path.split("/") if word.startswith("{")} == own, path


async def test_runs_are_started_and_read_under_their_short_addresses(server: Running) -> None:
    body = {"user_message": "What is 15 times 23?", "run_id": "job"}
    status, run = await server.ask("POST", "/runs", body)
    assert (status, run["id"]) == (202, "job")
    assert (await server.ask("POST", "/v1/runs/job/resume", {}))[1]["response"] == "15 * 23 = 345"
    _, listed = await server.ask("GET", "/runs")
    assert [one["id"] for one in listed["items"]] == ["job"]
    assert (await server.ask("GET", "/runs/job"))[1]["status"] == "completed"
    _, log = await server.ask("GET", "/logs/job")
    assert b"event: run.completed" in log and b"event: stream.ended" in log
    status, found = await server.ask("POST", "/policies/reload", {})
    assert status == 200 and found == (await server.ask("POST", "/v1/policies/reload", {}))[1]


async def test_checkpoints_of_a_loop_are_read_under_their_short_address(server: Running) -> None:
    status, ended = await server.ask("POST", "/v1/loops/wait", {"goal": "Say hello"})
    assert status == 200, ended
    run_id = ended["run_id"]
    for path in (f"/checkpoints/{run_id}", f"/v1/runs/{run_id}/replay"):
        status, found = await server.ask("GET", path)
        assert status == 200 and found == (await server.ask("GET", f"/v1/loops/{run_id}/replay"))[1]
    status, found = await server.ask("GET", "/checkpoints/none")
    assert (status, found["code"]) == (404, "usage.not_found"), found
