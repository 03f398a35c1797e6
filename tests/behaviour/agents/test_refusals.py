"""A model that refuses: the caller is told so, and it is not asked again for a form."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from holdfast import Agent, AsyncClient
from holdfast.ids import make_id
from holdfast.messages import Citation, Message, ModelRefusal, TextPart
from holdfast.testing import ScriptedModel


class Ticket(BaseModel):
    """What a caller wants."""

    title: str


@pytest.fixture
async def client(tmp_path):
    async with AsyncClient(base_dir=tmp_path / "state") as client:
        yield client


def say(*parts: TextPart, refusal: ModelRefusal | None = None) -> Message:
    return Message(
        id=make_id("msg"),
        session_id="",
        role="assistant",
        parts=parts,
        stop_reason="filtered" if refusal else "stop",
        refusal=refusal,
    )


async def test_the_result_of_a_refused_run_says_so(client):
    refusal = ModelRefusal(text="Not this.", category="cyber")
    model = ScriptedModel(say(refusal=refusal), "Gladly.")
    agent = Agent("clerk", model=model)
    refused = await agent.run("Do it", client=client)
    assert refused.status == "completed" and refused.response == ""
    assert refused.refusal == refusal
    done = await agent.run("Something else", client=client, session=refused.session_id)
    assert done.response == "Gladly." and done.refusal is None


async def test_a_refusal_is_kept_with_the_session(client):
    cited = TextPart(text="High.", citations=(Citation(kind="url_citation", url="https://a.b"),))
    refusal = ModelRefusal(text="Not this.")
    agent = Agent("clerk", model=ScriptedModel(say(cited), say(refusal=refusal)))
    first = await agent.run("The tide?", client=client)
    await agent.run("Do it", client=client, session=first.session_id)
    messages = (await client.messages.list(first.session_id)).items
    said = [message for message in messages if message.role == "assistant"]
    assert said[0].parts[0].citations == cited.citations
    assert said[1].refusal == refusal


async def test_a_refusal_is_not_corrected_into_the_wanted_form(client):
    model = ScriptedModel(say(TextPart(text="No."), refusal=ModelRefusal(text="No.")))
    result = await Agent("clerk", model=model, output=Ticket).run(
        "File it", client=client, raise_on_failure=False
    )
    assert result.status == "failed"
    assert result.metadata["error"]["code"] == "llm.content_filtered"
    assert len(model.requests) == 1
