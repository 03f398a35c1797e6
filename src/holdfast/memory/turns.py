"""The turns of a conversation as memories, each stored once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast.canonical import hash_sha256
from holdfast.memory.drafting import NewMemory
from holdfast.memory.entry import MemoryOptions, Provenance, Scope
from holdfast.memory.requests import MAX_TURN_CHARACTERS
from holdfast.messages import Message

TURN = "turn"
"""The kind of such memories."""


def turn_id(tenant: str, session_id: str, message: Message) -> str:
    """Return the id of a turn; the same message has the same one in every process."""
    return "mem_" + hash_sha256(f"{tenant}\0{session_id}\0{message.id}".encode())[:26]


def iterate_new_turns(
    messages: Sequence[tuple[Message, str]],
    known: frozenset[str],
    *,
    previous: str,
    scope: Scope,
    event_seqs: Mapping[str, int],
    labels: tuple[str, ...] = (),
) -> Iterator[NewMemory]:
    """Yield what to store of messages and their ids, each linked to the one before it."""
    for message, memory_id in messages:
        if memory_id not in known:
            options = MemoryOptions(
                scope=scope,
                kind=TURN,
                speaker=message.agent or message.role,
                created=message.time_created or None,
                previous_id=previous,
                provenance=Provenance(
                    author=message.agent or message.role,
                    event_seq=event_seqs.get(message.id, 0),
                    run_id=message.run_id,
                    labels=labels,
                ),
            )
            yield NewMemory(
                session_id=message.session_id,
                content=message.text[:MAX_TURN_CHARACTERS],
                metadata={"message": message.id},
                options=options,
                memory_id=memory_id,
            )
        previous = memory_id


__all__ = ["TURN", "iterate_new_turns", "turn_id"]
