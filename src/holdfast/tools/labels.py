"""Labels, the taint of what a model reads: where it comes from, and who must not learn it.

A result is `untrusted` if strangers may have written it, and `private` if they must not learn
it. A model that has read both may have been talked into carrying the one out with the other
(prompt injection), so from then on calls that send something out ask for the permission
`egress`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from holdfast.journal import Journal
from holdfast.messages import ToolPart
from holdfast.sessions import SessionManager
from holdfast.state import STATE, ToolStateSet

Label: TypeAlias = Literal["untrusted", "private"]
LABELS: Final[tuple[Label, ...]] = get_args(Label)


class ContextLabels(msgspec.Struct, eq=False):
    """The taint of everything that the model of a session has read; labels only grow.

    `labels` are those of the session and of its starter that the journal has; `is_online` says
    whether commands may reach the network; `new` are labels that no fact tells of yet.
    """

    labels: Collection[Label] = ()
    is_online: bool = False
    new: tuple[Label, ...] = ()

    @property
    def seen(self) -> frozenset[Label]:
        """Every label so far."""
        return frozenset((*self.labels, *self.new))

    @property
    def is_mixed(self) -> bool:
        """Whether both what strangers wrote and what they must not learn were read."""
        return len(self.seen) == len(LABELS)

    def add(self, labels: tuple[Label, ...]) -> None:
        """Note that something with these labels is read from now on."""
        for label in labels:
            if label not in self.labels and label not in self.new:
                self.new = (*self.new, label)

    def note_kept(self, labels: Iterable[Label]) -> None:
        """Note labels that the journal has been told of already."""
        self.labels = tuple(dict.fromkeys((*self.labels, *labels)))

    def list_unkept(self) -> tuple[ToolStateSet, ...]:
        """Return the facts about labels that are new since the last time."""
        new, self.new = sorted(self.new), ()
        self.labels = (*self.labels, *new)
        return tuple([ToolStateSet(key=_make_key(label), data={"value": True}) for label in new])


async def read_kept_labels(journal: Journal, session_id: str) -> tuple[Label, ...]:
    """Return the labels of what was read in a session so far."""
    rows = [await journal.row(STATE, session_id, _make_key(label)) for label in LABELS]
    return tuple([label for label, row in zip(LABELS, rows, strict=True) if row is not None])


async def find_new_labels(
    journal: Journal, session_id: str, child_id: str
) -> tuple[ToolStateSet, ...]:
    """Return what to keep in a session whose run goes on with what a child has answered.

    Taint spreads with the answer: the caller that reads it has read what the child had read.
    """
    return await list_missing_labels(journal, session_id, await read_kept_labels(journal, child_id))


async def list_missing_labels(
    journal: Journal, session_id: str, labels: Collection[str]
) -> tuple[ToolStateSet, ...]:
    """Return what to keep in a session so that it has these labels; nothing that it has."""
    held = ContextLabels(await read_kept_labels(journal, session_id))
    held.add(sort_labels(labels))
    return held.list_unkept()


async def keep_labels(sessions: SessionManager, session_id: str, labels: Collection[str]) -> None:
    """Note in a session, outside of a turn, what its next words were made from."""
    if missing := await list_missing_labels(sessions.journal, session_id, labels):
        async with sessions.writing(session_id) as hold:
            await hold.append(*missing, is_last=True)


def sort_labels(given: Iterable[str]) -> tuple[Label, ...]:
    """Return those of some words that are labels, each once."""
    known = frozenset(given)
    return tuple([label for label in LABELS if label in known])


def find_result_labels(parts: Iterable[ToolPart]) -> tuple[Label, ...]:
    """Return the labels of results that come with a conversation instead of from a call here.

    A result that says which tool made it has the labels of that tool; any other may have been
    written by strangers.
    """
    found: set[str] = set()
    for part in parts:
        if part.state == "pending":
            continue
        given = part.metadata.get("labels") if "source_hash" in part.metadata else ["untrusted"]
        found.update(str(one) for one in given or () if isinstance(given, list))
    return sort_labels(found)


def _make_key(label: str) -> str:
    # One key for each, so that the caller that knows only one of them does not take the other away.
    return f"holdfast.label.{label}"
