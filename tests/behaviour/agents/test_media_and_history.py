"""Messages with images and files, and sessions that begin with a history."""

from __future__ import annotations

import pytest

from holdfast import Agent, AsyncClient, Client, Image
from holdfast.errors import LLMInputUnsupported, RunIdReused, UsageError
from holdfast.messages import FilePart, TextPart, make_assistant_message, make_user_message
from holdfast.testing import ScriptedModel

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 16


@pytest.fixture
async def client(tmp_path):
    async with AsyncClient(base_dir=tmp_path / "state") as client:
        yield client


async def test_the_model_sees_the_picture_and_the_journal_keeps_it(client, tmp_path):
    (tmp_path / "cat.png").write_bytes(PNG)
    model = ScriptedModel("A cat.", "Still a cat.")
    agent = Agent("eye", model=model)
    first = await agent.run(["What?", Image(tmp_path / "cat.png"), "Say."], client=client)
    await agent.run("And now?", client=client, session=first.session_id)
    for request in model.requests:
        text, picture, more = request.messages[0].parts
        assert isinstance(text, TextPart)
        assert isinstance(picture, FilePart)
        assert isinstance(more, TextPart)
        assert (picture.media_type, picture.name, picture.data) == ("image/png", "cat.png", PNG)
    kept = (await client.messages.list(first.session_id)).items[0]
    assert kept.text == "What?\nSay."


async def test_a_model_without_such_input_refuses_before_anything_is_kept(client):
    with pytest.raises(LLMInputUnsupported) as caught:
        await Agent("eye", model="offline").run(["What?", Image(PNG)], client=client, run_id="look")
    assert caught.value.code == "llm.input_unsupported"
    assert await client.runs.list() == []


async def test_the_same_run_with_another_picture_is_refused(client):
    agent = Agent("eye", model=ScriptedModel("A cat."))
    await agent.run(["What?", Image(PNG)], client=client, run_id="look")
    again = await agent.run(["What?", Image(PNG)], client=client, run_id="look")
    assert again.response == "A cat."
    with pytest.raises(RunIdReused):
        await agent.run(["What?", Image(PNG + b"x")], client=client, run_id="look")


async def test_a_wrapper_changes_the_text_and_leaves_the_picture(client):
    model = ScriptedModel("A cat.")
    loud = Agent("eye", model=model).wrapped(before=str.upper)
    await loud.run(["What?", Image(PNG)], client=client)
    text, picture = model.requests[0].messages[0].parts
    assert text.text == "WHAT?"
    assert picture.data == PNG


async def test_the_client_takes_parts_and_refuses_what_is_none(client):
    model = ScriptedModel("A cat.")
    parts = (TextPart(text="What?"), Image(PNG).to_part())
    await client.execute_agent(Agent("eye", model=model), "", parts)
    assert model.requests[0].messages[0].parts[1].data == PNG
    for wrong in ((), ("What?", Image(PNG))):
        with pytest.raises(UsageError):
            await client.execute_agent(Agent("eye", model=model), "", wrong)


async def test_a_session_begins_with_a_history(client):
    model = ScriptedModel("Ann.", "Ann.")
    agent = Agent("friend", model=model)
    history = [make_user_message("I am Ann."), make_assistant_message("Hello Ann.")]
    first = await agent.run("Who am I?", client=client, history=history, run_id="who")
    assert [m.text for m in model.requests[0].messages] == ["I am Ann.", "Hello Ann.", "Who am I?"]
    # The same call again is the same run; nothing is said twice.
    again = await agent.run("Who am I?", client=client, history=history, run_id="who")
    assert again.session_id == first.session_id
    assert (await client.sessions.get(first.session_id)).message_count == 4
    with pytest.raises(UsageError, match="history"):
        await agent.run("Who?", client=client, history=history, session=first.session_id)


def test_blocking_runs_take_both(tmp_path):
    model = ScriptedModel("Ann.")
    with Client(base_dir=tmp_path / "state") as client:
        result = Agent("friend", model=model).run_sync(
            ["Who is this?", Image(PNG)], client=client, history=[make_user_message("I am Ann.")]
        )
    assert result.response == "Ann."
    assert model.requests[0].messages[0].text == "I am Ann."
    assert model.requests[0].messages[1].parts[1].data == PNG
