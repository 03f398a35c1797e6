"""Messages in two parts that are read as one."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.messages import JoinedMessages, Message, TokenUsage, split_parts, sum_usage

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
    assert split_parts(joined) == (ALL[:3], ALL[3:])
    assert split_parts(joined)[0] is joined.base
    assert split_parts(ALL) == ((), ALL)


def test_they_are_a_sequence_like_any_other() -> None:
    joined = JoinedMessages(ALL[:3], ALL[3:])
    assert isinstance(joined, Sequence)
    assert joined.index(ALL[3]) == 3
    assert joined.count(ALL[1]) == 1
    assert ALL[2] in joined
    assert list(reversed(joined)) == list(reversed(ALL))


def test_what_calls_used_together_is_what_they_used_one_by_one() -> None:
    one = TokenUsage(input=1, output=2, reasoning=3, cache_read=4, cache_write=5)
    assert sum_usage([one, one, TokenUsage(output=7)]) == one + one + TokenUsage(output=7)
    assert sum_usage([]) == TokenUsage()
