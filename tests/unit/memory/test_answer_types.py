"""Questions expect a kind of answer, and texts hold it or do not."""

from __future__ import annotations

import re

import pytest
from memory_setting import opened

from holdfast.memory import MemoryOptions, MemoryRules, NoEmbedder
from holdfast.memory.answer_types import (
    ENGLISH,
    AnswerRule,
    AnswerRules,
    classify_expected_answer,
    speaks_to_other,
)


def kinds(question: str) -> set[str]:
    return set(classify_expected_answer(question, (ENGLISH,)).rules)


@pytest.mark.parametrize(
    ("question", "kind", "fitting", "other"),
    [
        ("When did Melanie paint a sunrise?", "when", "I did it last year", "It was lovely"),
        ("What month did she move?", "when", "We moved in October", "We may move"),
        ("How long has he been married?", "when", "For 5 years now!", "Very happily"),
        ("How many children does she have?", "number", "I have three kids", "They are lovely"),
        ("How often does he run?", "number", "Twice a week", "Whenever it rains"),
        ("Where did she move from?", "where", "I came from Sweden", "It was hard"),
        ("Which city did he visit?", "where", "I loved the museum", "I loved it"),
        ("What book did she read?", "name", 'I read "Charlotte\'s Web"', "It was a good one"),
        ("Who inspired him?", "name", "It was always Woolf", "It was my own idea"),
    ],
)
def test_a_text_with_the_expected_kind_fits(
    question: str, kind: str, fitting: str, other: str
) -> None:
    expected = classify_expected_answer(question, (ENGLISH,))
    assert expected.fits(fitting)[kind] and not expected.fits(other)[kind]


@pytest.mark.parametrize("question", ["kettle", "Why did she leave?", "Is the door open?", ""])
def test_other_questions_expect_nothing(question: str) -> None:
    assert kinds(question) == set()


def test_what_speaks_of_the_other_one_only_is_told_apart() -> None:
    assert speaks_to_other("That's great, you must be proud!", (ENGLISH,))
    assert speaks_to_other("You're amazing", (ENGLISH,))
    assert not speaks_to_other("I think you are right", (ENGLISH,))
    assert not speaks_to_other("Young people came", (ENGLISH,))


GERMAN = AnswerRules(
    language="de",
    asks={
        "when": (
            AnswerRule(asked=re.compile(r"\bwann\b"), lower=re.compile(r"\b(?:gestern|morgen)\b")),
        )
    },
    addresses=re.compile(r"\bdu\b"),
    tells=re.compile(r"\bich\b"),
)


async def test_another_language_is_given_with_the_rules() -> None:
    texts = ("Der Zug war sehr voll", "Der Zug kam gestern an")
    for languages, expected in ((None, 0.0), ((ENGLISH, GERMAN), 0.1)):
        async with opened(NoEmbedder(), rules=MemoryRules(languages=languages)) as manager:
            for text in texts:
                await manager.store_memory("s", text, options=MemoryOptions(kind="fact"))
            found = await manager.search_memory("s", "Wann kam der Zug?")
            parts = {entry.content: entry.parts for entry in found}
            assert parts[texts[1]].when >= expected
            assert parts[texts[0]].when == 0.0
            assert (parts[texts[1]].when > 0) is (languages is not None)
