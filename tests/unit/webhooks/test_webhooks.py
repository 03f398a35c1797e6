"""Webhooks: signed, retried, journalled, and never lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from receiver import receiving

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import NotFound, PermissionDenied, UsageError
from holdfast.operations import Caller, runs
from holdfast.policy import Budget
from holdfast.settings import Settings, load_settings
from holdfast.testing import FakeClock, ScriptedModel, tool_call
from holdfast.webhooks import sign, verify
from holdfast.webhooks.service import PAUSES_S

LOCAL = "127.0.0.0/8"


def settings_of(folder: Path, *, networks: tuple[str, ...] = (LOCAL,)) -> Settings:
    (folder / "work").mkdir(exist_ok=True, parents=True)
    overrides: dict[str, Any] = {
        "storage.state_dir": str(folder / "state"),
        "workspace": str(folder / "work"),
        "server.webhook_networks": list(networks),
    }
    return load_settings(overrides=overrides).settings


@tool(permission="ask")
def destroy(what: str) -> str:
    """Destroy something."""
    return what


def test_the_signature_is_that_of_the_standard() -> None:
    # From the specification of Standard Webhooks.
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    message, time, body = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    signature = sign(secret, message, at=time, body=body)
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    headers = {"webhook-id": message, "webhook-timestamp": str(time)}
    headers["webhook-signature"] = f"v1,other {signature}"
    assert verify(secret, headers, body, now=time + 1)
    assert not verify(secret, headers, body + b" ", now=time)
    assert not verify(secret, headers, body, now=time + 301)
    assert not verify(secret, {**headers, "webhook-id": "msg_x"}, body, now=time)
    assert not verify(secret, {**headers, "webhook-timestamp": "x"}, body, now=time)
    for wrong in ("whsec_?", "whsec_YQ=="):
        with pytest.raises(UsageError):
            sign(wrong, message, at=time, body=body)


async def test_what_happens_is_told_signed_and_without_content(tmp_path: Path) -> None:
    async with receiving() as receiver, AsyncClient(settings=settings_of(tmp_path)) as client:
        made = await client.webhooks.add(receiver.url)
        await client.runs.execute(Agent("a", model=ScriptedModel("the-secret-answer")), "", "hi")
        asks = Agent("b", model=ScriptedModel(tool_call("destroy", what="x")), tools=[destroy])
        await client.runs.execute(asks, "", "hi", on_ask="park")
        poor = Agent("c", model=ScriptedModel("no"))
        await client.runs.execute(poor, "", "hi", budget=Budget(max_tokens=1))
        assert await client.webhooks.deliver() == len(receiver.seen)
        types = sorted(json.loads(body)["type"] for _, body in receiver.seen)
        expected = ["approval.asked", "budget.exhausted", "run.ended", "run.failed", "run.parked"]
        assert types == expected
        now = client._runtime.journal.clock.now()
        for headers, body in receiver.seen:
            assert verify(made.secret, headers, body, now=now)
            assert b"the-secret-answer" not in body
        assert await client.webhooks.deliver() == 0
        found = await client.webhooks.deliveries(status="delivered")
        assert {one.id for one in found} == {headers["webhook-id"] for headers, _ in receiver.seen}
        assert made.secret not in str(await client.webhooks.list())


async def test_the_secret_is_kept_in_a_private_file_and_in_no_journal(tmp_path: Path) -> None:
    async with receiving() as receiver, AsyncClient(settings=settings_of(tmp_path)) as client:
        made = await client.webhooks.add(receiver.url, ["run.ended"])
        state = tmp_path / "state"
        key = made.secret.removeprefix("whsec_").encode()
        holding = [one for one in state.rglob("*") if one.is_file() and key in one.read_bytes()]
        assert [one.name for one in holding] == ["webhooks.json"]
        assert holding[0].stat().st_mode & 0o777 == 0o600
        await client.webhooks.remove(made.webhook.id)
        assert key not in holding[0].read_bytes()
        with pytest.raises(NotFound):
            await client.webhooks.remove(made.webhook.id)


async def test_what_is_not_taken_is_sent_again_and_in_the_end_is_a_dead_letter(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with receiving() as receiver, AsyncClient(settings=settings_of(tmp_path)) as client:
        await client.webhooks.add(receiver.url, ["run.ended"])
        runtime = client._runtime
        runtime.journal.clock = clock
        receiver.answers = [500] * (len(PAUSES_S) + 1)
        await client.runs.execute(Agent("a", model=ScriptedModel("x")), "", "hi")
        for number, pause_s in enumerate(PAUSES_S, 1):
            assert await client.webhooks.deliver() == 0
            assert await client.webhooks.deliver() == 0  # not yet
            assert len(receiver.seen) == number
            [waiting] = await client.webhooks.deliveries(status="pending")
            assert waiting.attempts == number and waiting.http_status == 500
            assert pause_s <= waiting.next_at - clock.now() <= pause_s * 1.2
            clock.advance(pause_s * 1.2)
        assert await client.webhooks.deliver() == 0
        [dead] = await client.webhooks.deliveries(status="dead")
        clock.advance(10 * 86_400)
        assert await client.webhooks.deliver() == 0
        again = await client.webhooks.redeliver(dead.id)
        assert (again.status, again.attempts) == ("pending", 0)
        assert await client.webhooks.deliver() == 1
        assert len({headers["webhook-id"] for headers, _ in receiver.seen}) == 1
        with pytest.raises(NotFound):
            await client.webhooks.redeliver("msg_none")


async def test_an_address_that_is_gone_is_not_asked_again(tmp_path: Path) -> None:
    async with receiving() as receiver, AsyncClient(settings=settings_of(tmp_path)) as client:
        made = await client.webhooks.add(receiver.url, ["run.ended"])
        receiver.answers = [410]
        await client.runs.execute(Agent("a", model=ScriptedModel("x")), "", "hi")
        await client.webhooks.deliver()
        assert [one.status for one in await client.webhooks.deliveries()] == ["dead"]
        [dead] = await client.webhooks.deliveries()
        await client.webhooks.redeliver(dead.id)
        await client.webhooks.remove(made.webhook.id)
        assert await client.webhooks.deliver() == 0
        assert [one.status for one in await client.webhooks.deliveries()] == ["dead"]
        with pytest.raises(NotFound):
            await client.webhooks.redeliver(dead.id)


@pytest.mark.parametrize(
    "url", ["ftp://example.com", "https://", "x", "https://user:pass@example.com/", ""]
)
async def test_an_address_that_cannot_be_meant_is_refused(tmp_path: Path, url: str) -> None:
    async with AsyncClient(settings=settings_of(tmp_path)) as client:
        with pytest.raises(UsageError):
            await client.webhooks.add(url)
        with pytest.raises(UsageError):
            await client.webhooks.add("https://example.com", ["run.began"])  # type: ignore[list-item]


@pytest.mark.parametrize("host", ["127.0.0.1", "169.254.169.254", "10.0.0.1", "[::1]", "0x7f.1"])
async def test_an_address_inside_is_refused(tmp_path: Path, host: str) -> None:
    async with AsyncClient(settings=settings_of(tmp_path, networks=())) as client:
        with pytest.raises(PermissionDenied):
            await client.webhooks.add(f"http://{host}/hook")
        assert await client.webhooks.list() == []


async def test_a_server_sends_by_itself_also_for_a_webhook_of_another_process(
    tmp_path: Path,
) -> None:
    settings = settings_of(tmp_path)
    async with receiving() as receiver, AsyncClient(settings=settings) as serving:
        await (await serving._runtime.opened()).webhooks.begin()
        await serving.webhooks.add(receiver.url, ["run.ended"])
        async with AsyncClient(settings=settings) as other:
            await other.runs.execute(Agent("a", model=ScriptedModel("x")), "", "hi")
        await receiver.wait_for(1)
        async with asyncio.timeout(20):
            while not await serving.webhooks.deliveries(status="delivered"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


CHILD = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_webhooks import settings_of
from holdfast import Agent, AsyncClient
from holdfast.testing import ScriptedModel

async def main():
    async with AsyncClient(settings=settings_of(Path(sys.argv[1]))) as client:
        for number in range(3):
            await client.runs.execute(Agent("a", model=ScriptedModel("x")), "", "hi")
        print("ran", flush=True)
        await client.webhooks.deliver()
        print("delivered", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("kill_after", ["ran", "first request"])
async def test_nothing_is_lost_when_the_process_is_killed(tmp_path: Path, kill_after: str) -> None:
    settings = settings_of(tmp_path)
    async with receiving() as receiver:
        async with AsyncClient(settings=settings) as client:
            await client.webhooks.add(receiver.url, ["run.ended"])
        words = [sys.executable, "-c", CHILD, str(tmp_path), str(Path(__file__).parent)]
        child = await asyncio.create_subprocess_exec(
            *words, stdout=subprocess.PIPE, env={**os.environ}
        )
        assert child.stdout is not None
        async with asyncio.timeout(60):
            assert await child.stdout.readline() == b"ran\n"
            if kill_after == "first request":
                await receiver.wait_for(1)
        child.send_signal(signal.SIGKILL)
        await child.communicate()
        async with AsyncClient(settings=settings) as client:
            await client.webhooks.deliver()
            done = await client.webhooks.deliveries(status="delivered")
            runs = {run.id for run in await client.runs.list()}
        assert len(runs) == 3
        assert {one.data["run_id"] for one in done} == runs
        # At least once: whoever gets one twice knows it by its id.
        ids = [headers["webhook-id"] for headers, _ in receiver.seen]
        assert len(set(ids)) == 3


async def test_of_two_servers_on_one_state_one_sends_and_the_other_takes_over(
    tmp_path: Path,
) -> None:
    settings = settings_of(tmp_path)
    async with receiving() as receiver, AsyncClient(settings=settings) as first:
        await first.webhooks.add(receiver.url, ["run.ended"])
        async with AsyncClient(settings=settings) as second:
            for client in (first, second):
                await client._runtime.webhooks.begin()
            for number in range(20):
                await (first, second)[number % 2].runs.execute(
                    Agent("a", model=ScriptedModel("x")), "", "hi"
                )
            await receiver.wait_for(20)
            # Whichever sends, the other takes nothing while it lives.
            sent = [await client.webhooks.deliver() for client in (first, second)]
            assert sum(sent) == 0
            ids = [headers["webhook-id"] for headers, _ in receiver.seen]
            assert len(ids) == len(set(ids)) == 20
            holds = [client._runtime.webhooks._lead is not None for client in (first, second)]
            assert sorted(holds) == [False, True]
        # The second is gone, and what happens now is told all the same.
        await first.runs.execute(Agent("a", model=ScriptedModel("x")), "", "hi")
        await receiver.wait_for(21)
        assert len({headers["webhook-id"] for headers, _ in receiver.seen}) == 21


async def test_what_was_told_of_a_user_is_erased_with_them(tmp_path: Path) -> None:
    async with receiving() as receiver, AsyncClient(settings=settings_of(tmp_path)) as client:
        await client.webhooks.add(receiver.url, ["run.ended"])
        for who in ("ada", "bob"):
            caller = Caller(tenant="default", subject=who, scopes=frozenset({"runs:write"}))
            await runs.execute.perform(await client._runtime.opened(), caller, "", "", "hi")
        assert await client.webhooks.deliver() == 2
        await client.tenants.erase_user("ada")
        left = [one.data for one in await client.webhooks.deliveries()]
        assert [one.get("owner") for one in left if one] == ["bob"]
        assert len(left) == 2
