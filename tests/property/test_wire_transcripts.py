"""Whatever was sent before, a request is the bytes that a fresh codec would send."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.messages import FilePart, JoinedMessages, Message, Part, Role, TextPart, ToolPart
from holdfast.providers.model import ModelInfo, ModelRequest
from holdfast.providers.wire import codec as wire_codec
from holdfast.providers.wire.anthropic import AnthropicCodec
from holdfast.providers.wire.chat import ChatCodec
from holdfast.providers.wire.codec import Codec
from holdfast.providers.wire.endpoint import Endpoint
from holdfast.providers.wire.responses import ResponsesCodec

CODECS: dict[str, Callable[[Endpoint, ModelInfo], Codec]] = {
    "chat": ChatCodec,
    "responses": ResponsesCodec,
    "anthropic": AnthropicCodec,
}
PICTURE = FilePart(name="a.png", media_type="image/png", url="data:image/png;base64,AAAA")
KINDS = ("user", "empty", "assistant", "call", "result", "picture")
TALK = st.lists(st.sampled_from(KINDS), min_size=1, max_size=12)


def made(kind: str, number: int) -> Message:
    parts: tuple[Part, ...] = (TextPart(text=f"{kind} {number}"),)
    if kind in ("call", "result", "picture"):
        files = (PICTURE,) if kind == "picture" else ()
        state = "pending" if kind == "call" else "completed"
        call = ToolPart(call_id=f"c{number}", tool="look", state=state, attachments=files)  # type: ignore[arg-type]
        parts = (call,)
    role = {"call": "assistant", "result": "tool", "picture": "tool", "empty": "user"}
    return Message(
        id=f"m{number}",
        session_id="s",
        role=cast(Role, role.get(kind, kind)),
        parts=() if kind == "empty" else parts,
    )


@pytest.mark.parametrize("name", CODECS)
@given(
    talk=TALK,
    ways=st.lists(
        st.tuples(st.integers(1, 12), st.booleans(), st.none() | st.integers(0, 12)), max_size=8
    ),
)
@settings(max_examples=60, deadline=None)
def test_requests_do_not_depend_on_what_was_sent_before(
    name: str, talk: list[str], ways: list[tuple[int, bool, int | None]]
) -> None:
    """Conversations grow, shrink and branch, in one part or two; no bytes tell of another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_codec, "_WORTH_KEEPING", 1)
        patch.setattr(wire_codec, "_MOST_KEPT", 2)
        endpoint = Endpoint(api=name, base_url="http://127.0.0.1:1/v1", provider="test")  # type: ignore[arg-type]
        info = ModelInfo(provider="test", model="m")
        codec = CODECS[name](endpoint, info)
        messages = [made(kind, number) for number, kind in enumerate(talk)]
        branch = [messages[0], *(made("user", 100 + n) for n in range(len(talk)))]
        bases: dict[tuple[bool, int], tuple[Message, ...]] = {}
        for length, is_branch, parted_at in [*ways, (len(talk), False, None)]:
            chosen = tuple((branch if is_branch else messages)[:length])
            request = ModelRequest(messages=chosen, system="S" if length % 2 else "")
            fresh = CODECS[name](endpoint, info)
            expected = fresh.encode(request, stream=True)
            if parted_at is not None and parted_at <= length:
                base = bases.setdefault((is_branch, parted_at), chosen[:parted_at])
                joined = JoinedMessages(base, chosen[parted_at:])
                request = ModelRequest(messages=joined, system=request.system)
            assert codec.encode(request, stream=True) == expected
            if isinstance(codec, AnthropicCodec) and isinstance(fresh, AnthropicCodec):
                turn = {"content": [{"type": "text", "text": "begun"}]}
                on = codec.encode_on(request, turn, stream=True)
                assert on == fresh.encode_on(request, turn, stream=True)
                assert msgspec.json.decode(on)["messages"][-1] == {"role": "assistant", **turn}
