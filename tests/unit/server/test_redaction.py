"""Secrets and personal data are taken out on the way in, on the way out, both, or neither."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from served import Running, running

from holdfast import Agent
from holdfast.errors import ConfigError
from holdfast.operations import OWNER, messages
from holdfast.providers import TextDelta
from holdfast.redaction import Redactor
from holdfast.server.redaction import ANSWERS, PassingRedaction, hold_pieces
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, ModelReply

KEY = "sk-proj-" + "Ab3" * 16
MAIL = "ada.lovelace@example.org"
PEM = (
    "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n" * 4
) + "-----END PRIVATE KEY-----"


def make_speaker(*pieces: str) -> Agent:
    """An agent whose model says these pieces, one by one."""
    return Agent("speaker", model=FunctionModel(lambda request: ModelReply(text="".join(pieces))))


def split(text: str) -> list[str]:
    return [text[at : at + 3] for at in range(0, len(text), 3)]


async def stored_text(server: Running, run_id: str) -> str:
    runtime = await server.app.runtimes.runtime_for(OWNER)
    run = await runtime.turns.get(run_id)
    page = await messages.list_.perform(runtime, OWNER, run.session_id)
    return "\n".join(message.text for message in page.items)


@pytest.mark.parametrize("wants", [(), ("secrets",), ("personal",), ("secrets", "personal")])
async def test_requests_are_read_without_what_is_named(tmp_path: Path, wants: Any) -> None:
    async with running(tmp_path, redact_requests=wants) as server:
        said = {"user_message": f"Write to {MAIL} with {KEY}"}
        status, found = await server.ask("POST", "/v1/runs/wait", said)
        assert status == 200, found
        text = await stored_text(server, found["run_id"])
        # The journal holds no secrets in any case.
        assert KEY not in text and ("[redacted:email]" in text) == ("personal" in wants)
        entry = {"address": "global/x", "value": {"to": [MAIL]}}
        assert (await server.ask("PUT", "/v1/state/value", entry))[0] == 200
        _, found = await server.ask("GET", "/v1/state/value?address=global/x")
        assert (found["value"]["to"] == [MAIL]) == ("personal" not in wants)
        status, found = await server.ask("POST", "/v1/sessions", {"tilte": MAIL})
        assert status == 400 and "did you mean `title`?" in found["detail"]


@pytest.mark.parametrize("wants", [(), ("secrets",), ("personal",), ("secrets", "personal")])
@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson"])
async def test_answers_and_streams_come_without_what_is_named(
    tmp_path: Path, wants: Any, accept: str
) -> None:
    text = f"Ask {MAIL}.\nUse {KEY} or\n{PEM}\nand go on"
    agents = [make_speaker(text)]
    async with running(tmp_path, agents=agents, redact_answers=wants) as server:
        body = {"agent_name": "speaker", "user_message": "say it"}
        headers = {"Accept": accept}
        async with server.http.post(
            f"{server.url}/v1/runs/stream", json=body, headers=headers
        ) as response:
            streamed = (await response.read()).decode()
        _, runs = await server.ask("GET", "/v1/runs")
        run_id = runs["items"][0]["id"]
        _, result = await server.ask("GET", f"/v1/runs/{run_id}/result")
        async with server.http.get(f"{server.url}/v1/runs/{run_id}/events") as response:
            events = (await response.read()).decode()
        for told in (streamed, json.dumps(result), events):
            assert (MAIL in told) == ("personal" not in wants), told
        assert "go on" in streamed and "go on" in result["response"]
        if "secrets" in wants:
            assert KEY not in streamed and "MIIEvQ" not in streamed
        for line in streamed.splitlines():
            if line.startswith(("data: ", "{")):
                json.loads(line.removeprefix("data: "))


async def test_what_is_split_over_pieces_is_found(tmp_path: Path) -> None:
    text = f"First line.\nAsk {MAIL} soon.\n{PEM}\nUse {KEY}"
    told = "".join(await gather_texts(tmp_path, split(text)))
    assert told.startswith("First line.\nAsk [redacted:email] soon.\n[redacted:private-key]")
    assert KEY not in told and "[redacted:" in told.rpartition("Use ")[2]


async def gather_texts(tmp_path: Path, pieces: list[str]) -> list[str]:
    async def come() -> Any:
        for piece in pieces:
            yield TextDelta(piece)

    token = ANSWERS.set(PassingRedaction([Redactor(), Redactor(formats=(), has_personal=True)]))
    try:
        return [item.text async for item in hold_pieces(come())]
    finally:
        ANSWERS.reset(token)


async def test_pieces_come_as_soon_as_their_line_is_whole(tmp_path: Path) -> None:
    told = await gather_texts(tmp_path, ["one ", "two\nthr", "ee\n", "four"])
    assert told == ["one two\n", "three\n", "four"]
    # A line without end is shown all the same, but for its end.
    told = await gather_texts(tmp_path, ["word "] * 2_000)
    assert len(told) > 2 and "".join(told) == "word " * 2_000


async def test_what_is_shown_once_and_whom_we_know_is_left_alone(tmp_path: Path) -> None:
    both = ("secrets", "personal")
    async with running(tmp_path, redact_requests=both, redact_answers=both) as server:
        status, made = await server.ask("POST", "/v1/keys", {"name": "k", "roles": ["viewer"]})
        assert status == 201 and made["secret"].startswith("hf_")
        headers = {"Authorization": f"Bearer {made['secret']}"}
        assert (await server.ask("GET", "/v1/sessions", headers=headers))[0] == 200
        status, link = await server.ask("POST", "/login/links", headers=headers)
        assert status == 201
        async with server.http.get(server.url + link["path"], allow_redirects=False) as response:
            assert response.status == 200 and "set-cookie" in response.headers
        async with server.http.head(f"{server.url}/v1/sessions") as response:
            assert response.status == 200
        async with server.http.get(f"{server.url}/openapi.json") as response:
            assert (await response.json())["openapi"].startswith("3.1")
        # Bodies that are no JSON are refused as they are without redaction.
        for body in (b"{", b"[" * 100_000, b"\xff"):
            async with server.http.post(
                f"{server.url}/v1/sessions", data=body, headers={"Content-Type": "application/json"}
            ) as response:
                assert response.status == 400
        async with server.http.post(
            f"{server.url}/v1/sessions", data=io.BytesIO(b" " * 5_000_000),
            headers={"Content-Type": "application/json"},
        ) as response:  # fmt: skip
            assert response.status == 413


async def test_a_project_cannot_say_what_is_redacted(tmp_path: Path) -> None:
    for line in ("redact_answers = []", "recheck_s = 1e9", "max_body_bytes = 2048"):
        (tmp_path / "holdfast.toml").write_text(f"[server]\n{line}\n")
        with pytest.raises(ConfigError):
            load_settings(cwd=tmp_path)
    (tmp_path / "holdfast.toml").write_text("[server]\nport = 9000\n")
    assert load_settings(cwd=tmp_path).settings.server.port == 9000
