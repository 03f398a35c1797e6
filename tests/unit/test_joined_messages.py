"""Messages in two parts that are read as one."""

from __future__ import annotations

from holdfast.messages import Message
from holdfast.messages.joined import JoinedMessages, parts_of

ALL = tuple(Message(id=f"m{number}", session_id="s", role="user") for number in range(4))


def test_however_they_are_parted_they_are_equal() -> None:
    for count in range(5):
        joined = JoinedMessages(ALL[:count], ALL[count:])
        assert joined == ALL
        assert joined == list(ALL)
        assert joined == JoinedMessages(ALL)
        assert joined != ALL[:3]
        assert joined != "m0"
        assert joined != 4
        assert repr(joined) == repr(ALL)


def test_the_parts_are_handed_out_as_they_were_given() -> None:
    joined = JoinedMessages(ALL[:3], ALL[3:])
    assert parts_of(joined) == (ALL[:3], ALL[3:])
    assert parts_of(joined)[0] is joined.base
    assert parts_of(ALL) == ((), ALL)
