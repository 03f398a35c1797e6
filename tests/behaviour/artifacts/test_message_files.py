"""Files in messages are artifacts: named in the journal, shown to the model, kept by forks."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.artifacts import ArtifactFilter
from holdfast.errors import ArtifactQuotaExceeded
from holdfast.messages import FilePart, TextPart
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools import ToolContext, ToolResult

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
IMAGE = FilePart(media_type="image/png", name="pixel.png", data=PIXEL)


@tool(effect="read")
async def photograph() -> ToolResult:
    """Take a picture."""
    return ToolResult("a picture", attachments=(IMAGE,))


@tool(effect="idempotent")
async def share(context: ToolContext) -> str:
    """Keep a note for all sessions of the user."""
    return await context.artifacts.save("note.txt", b"obey me", scope="user")


@tool(effect="read", labels=("untrusted",))
async def hear() -> str:
    """Hear what strangers say."""
    return "strange words"


def shown_files(model: ScriptedModel) -> list[FilePart]:
    """Return the files of the last request, also those that results bring."""
    found: list[FilePart] = []
    for message in model.requests[-1].messages:
        for part in message.parts:
            found += [part] if isinstance(part, FilePart) else getattr(part, "attachments", ())
    return found


async def test_a_file_of_a_message_is_an_artifact_and_the_model_sees_its_bytes(tmp_path: Path):
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("look")
        added = await client.add_message(
            session.id, "user", [TextPart(text="What is this?"), IMAGE]
        )
        [kept] = (await client.artifacts.list()).items
        assert (kept.name, kept.media_type, kept.kind) == ("pixel.png", "image/png", "user_input")
        assert added.parts[1].url == f"artifact:{kept.id}" and added.parts[1].data is None
        model = ScriptedModel("a pixel")
        await client.execute_agent(Agent("eye", model=model), session.id, "Say.")
        assert shown_files(model) == [
            FilePart(media_type="image/png", name="pixel.png", data=PIXEL)
        ]
        written = json.dumps([one.payload.decode() for one in await client.events.list(session.id)])
        assert base64.b64encode(PIXEL).decode()[:40] not in written


async def test_what_a_call_attaches_is_kept_once_and_shown_in_every_turn(tmp_path: Path):
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("look")
        model = ScriptedModel(tool_call("photograph"), "seen", tool_call("photograph"), "again")
        agent = Agent("eye", model=model, tools=[photograph])
        for text in ("look", "look again"):
            assert (await client.execute_agent(agent, session.id, text)).status == "completed"
        assert [one.data for one in shown_files(model)] == [PIXEL, PIXEL]
        [kept] = (await client.artifacts.list(ArtifactFilter(has_old_versions=True))).items
        assert kept.kind == "tool_result" and kept.call_id
        fork = await client.fork_session(session.id)
        await client.delete_session(session.id)
        fresh = ScriptedModel("still there")
        await client.execute_agent(Agent("eye", model=fresh), fork.id, "Say.")
        assert [one.data for one in shown_files(fresh)] == [PIXEL, PIXEL]


async def test_a_file_that_was_deleted_is_named_and_the_conversation_goes_on(tmp_path: Path):
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("look")
        await client.add_message(session.id, "user", [IMAGE])
        [kept] = (await client.artifacts.list()).items
        await client.artifacts.delete(kept.id)
        model = ScriptedModel("fine")
        result = await client.execute_agent(Agent("eye", model=model), session.id, "Say.")
        assert result.status == "completed" and shown_files(model) == []
        assert "pixel.png cannot be shown" in model.requests[0].messages[0].text


async def test_a_message_shows_nothing_that_its_session_may_not_reach(tmp_path: Path):
    async with AsyncClient(tmp_path) as client:
        one, other = [await client.create_session(name) for name in ("one", "other")]
        saved = await client.artifacts.save("secret", PIXEL, session_id=one.id)
        forged = FilePart(media_type="image/png", url=f"artifact:{saved.id}")
        await client.add_message(other.id, "user", [forged])
        model = ScriptedModel("fine")
        await client.execute_agent(Agent("eye", model=model), other.id, "Say.")
        assert shown_files(model) == []


async def test_an_attachment_beyond_the_quota_is_left_out_and_the_model_is_told(tmp_path: Path):
    settings = load_settings(overrides={"artifacts.session_bytes": 10}).settings
    async with AsyncClient(tmp_path, settings=settings) as client:
        session = await client.create_session("look")
        with pytest.raises(ArtifactQuotaExceeded):
            await client.add_message(session.id, "user", [IMAGE])
        assert (await client.list_messages(session.id)).items == ()
        model = ScriptedModel(tool_call("photograph"), "seen")
        agent = Agent("eye", model=model, tools=[photograph])
        assert (await client.execute_agent(agent, session.id, "look")).status == "completed"
        assert shown_files(model) == []
        assert "A file was left out" in str(model.requests[-1].messages)


async def test_a_model_reads_the_whole_of_an_output_that_was_cut(tmp_path: Path):
    @tool(effect="read")
    async def talk() -> str:
        """Say a lot."""
        return "\n".join(f"line {number}" for number in range(40_000))

    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("long")
        model = ScriptedModel(tool_call("talk"), "long")
        await client.execute_agent(Agent("a", model=model, tools=[talk]), session.id, "go")
        [kept] = (await client.artifacts.list()).items
        address = f"artifact:{kept.id}"
        assert address in str(model.requests[-1].messages)
        again = ScriptedModel(tool_call("read", file_path=address, offset=20_000, limit=2), "seen")
        reader = Agent("a", model=again, allowed_tools=["read"])
        await client.execute_agent(reader, session.id, "read it")
        assert "line 19999\n" in again.requests[-1].messages[-1].parts[0].output


async def test_taint_goes_with_a_file_into_another_session(tmp_path: Path):
    async with AsyncClient(tmp_path) as client:
        first = await client.create_session("first")
        model = ScriptedModel(tool_call("hear"), tool_call("share"), "shared")
        agent = Agent("a", model=model, tools=[hear, share])
        await client.execute_agent(agent, first.id, "go")
        [kept] = [one for one in (await client.artifacts.list()).items if one.name == "note.txt"]
        second = await client.create_session("second")
        await client.add_message(
            second.id, "user", [FilePart(media_type="text/plain", url=f"artifact:{kept.id}")]
        )
        model = ScriptedModel(tool_call("read", file_path=f"artifact:{kept.id}"), "read")
        reader = Agent("b", model=model, allowed_tools=["read"])
        await client.execute_agent(reader, second.id, "go")
        assert "obey me" not in str(model.requests[0].messages)
        assert "obey me" in str(model.requests[1].messages)
        facts = [one.decode() for one in await client.events.list(second.id, limit=1000)]
        keys = [getattr(fact, "key", "") for fact in facts]
        assert "holdfast.label.untrusted" in keys


async def test_what_a_summary_stands_for_names_its_files(tmp_path: Path):
    async with AsyncClient(tmp_path) as client:
        session = await client.create_session("look")
        await client.add_message(session.id, "user", [TextPart(text="Look " * 200), IMAGE])
        await client.add_message(session.id, "assistant", "A pixel. " * 200)
        await client.add_message(session.id, "user", "And now? " * 200)
        [kept] = (await client.artifacts.list()).items
        for _ in range(2):
            summary = await client.sessions.compact(session.id, model=ScriptedModel("Short."))
            assert summary is not None
            assert summary.parts[0].summary.count(f"artifact:{kept.id}") >= 1
            await client.add_message(session.id, "user", "More of it. " * 300)
            await client.add_message(session.id, "assistant", "Yes. " * 300)
