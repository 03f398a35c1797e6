"""Answer types: which kind of answer a question expects, and which texts can hold one.

Question answering calls this answer type detection. A question for a time is answered by a
text with a time expression, one for a number by a text with a number, and so on. Rules are
regular expressions over a bounded part of each text, one set per language: English comes
with the package, others are given to `MemoryRules.languages`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

TYPES = ("when", "number", "where", "name")
"""The kinds of answers that are told apart; an answer to "how long" counts as `when`."""
_CHARACTERS = 1_000
"""So much of a text is looked at: rules stay linear, and a long text holds everything anyway."""


class AnswerRule(msgspec.Struct, frozen=True, kw_only=True):
    """How a question asks, and what a text that answers it contains: one of two patterns.

    Patterns are searched for and must be linear in their text. Texts are brought to small
    letters first, except for `cased`: ignoring case in a pattern takes four times as long.
    """

    asked: re.Pattern[str]
    """Looked for in the question, in small letters."""
    lower: re.Pattern[str] | None = None
    """Looked for in the text, in small letters."""
    cased: re.Pattern[str] | None = None
    """Looked for in the text as it is, for capitals and quotations."""


class AnswerRules(msgspec.Struct, frozen=True, kw_only=True):
    """How one language asks for a type of answer, and how such an answer looks."""

    language: str
    asks: dict[str, tuple[AnswerRule, ...]]
    """By type."""
    addresses: re.Pattern[str]
    """Words that speak to the other one, in small letters: "you"."""
    tells: re.Pattern[str]
    """Words of a speaker about themselves, in small letters: "i", "my", "we"."""


class ExpectedAnswer(msgspec.Struct, frozen=True):
    """What a question expects: rules of which a text that may answer it meets one, by type."""

    rules: dict[str, tuple[AnswerRule, ...]]

    def fits(self, text: str) -> dict[str, bool]:
        """Say for each expected type whether the text holds an expression of it."""
        some = text[:_CHARACTERS]
        lower = some.lower()
        return {
            kind: any(
                (one.lower is not None and one.lower.search(lower))
                or (one.cased is not None and one.cased.search(some))
                for one in rules
            )
            for kind, rules in self.rules.items()
        }


def classify_expected_answer(question: str, languages: Sequence[AnswerRules]) -> ExpectedAnswer:
    """Return what a question expects; nothing for one that asks for none of the types."""
    some = question[:_CHARACTERS].lower()
    found: dict[str, tuple[AnswerRule, ...]] = {}
    for language in languages:
        for kind in TYPES:
            wanted = tuple(rule for rule in language.asks.get(kind, ()) if rule.asked.search(some))
            if wanted:
                found[kind] = (*found.get(kind, ()), *wanted)
    return ExpectedAnswer(found)


def speaks_to_other(text: str, languages: Sequence[AnswerRules]) -> bool:
    """Whether an utterance is about the other one only: it says "you", and never "I" or "we"."""
    some = text[:_CHARACTERS].lower()
    return any(rules.addresses.search(some) and not rules.tells.search(some) for rules in languages)


def _split_words(text: str) -> str:
    return "|".join(text.split())


_MONTH = _split_words(
    "january february march april may june july august september october november december"
)
_DAY = _split_words("monday tuesday wednesday thursday friday saturday sunday")
_UNIT = _split_words("second minute hour day night week weekend month year decade")
_SEASON = _split_words("spring summer autumn fall winter")
_COUNT = _split_words(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety "
    "hundred thousand million couple few several dozen half"
)
_WHEN = re.compile(
    rf"\b(?:today|tonight|yesterday|tomorrow|ago|recently|lately|earlier|soon|"
    rf"{_DAY}|(?:{_MONTH})(?<!\bmay)|may \d{{1,2}}|"
    rf"(?:last|next|this|past|previous|coming|every|few|couple of|the other) "
    rf"(?:few |couple of )?(?:{_UNIT}|{_SEASON}|morning|afternoon|evening|time)s?|"
    rf"(?:in|since|by|until) (?:19|20)\d\d|(?:19|20)\d\d|\d{{1,2}}(?:st|nd|rd|th)|"
    rf"\d{{1,2}}(?::\d\d)? ?[ap]\.?m\b|"
    rf"(?:a|{_COUNT}|\d{{1,4}}) (?:{_UNIT})s? (?:before|later|from))",
)
_DURATION = re.compile(
    rf"\b(?:(?:an?|{_COUNT}|\d{{1,4}})(?: or (?:{_COUNT}|\d{{1,4}}))?[ -]"
    rf"(?:whole |full |long |more )?(?:{_UNIT})s?|since|(?:all|whole|entire) (?:{_UNIT})|"
    r"forever|ages|for (?:years|months|weeks|days|hours))\b",
)
_NUMBER = re.compile(
    rf"\d|\b(?:{_COUNT}|once|twice|thrice|daily|weekly|monthly|yearly|single|both|"
    rf"(?:every|each|per) (?:{_UNIT}|morning|evening|{_DAY})|"
    rf"(?:times?|{_UNIT}s?) an? (?:{_UNIT}))\b",
)
_PLACE = _split_words(
    "home school college university church hospital museum gallery park beach lake river mountain "
    "mountains forest woods cafe restaurant bar shop store mall market office studio gym library "
    "theater theatre cinema stadium hotel airport station city town village country state island "
    "street downtown neighborhood neighbourhood center centre campground camp farm garden trail "
    "coast shelter abroad kitchen attic cellar basement garage bedroom bathroom balcony room "
    "drawer cupboard shelf desk"
)
_WHERE = re.compile(rf"\b(?:{_PLACE})\b")
_WHERE_NAMED = re.compile(
    r"\b(?:in|at|to|from|near|around|visit(?:ed|ing)?|through|via|of|into) "
    r"(?:the |my |our |a |an )?[A-Z]\w"
)
_NAMED = re.compile(
    "[\"\u201c\u201d\u00ab]|(?:^|\\s)['\u2018]\\w|(?<=[a-z0-9,;:] )(?!I\\b|I['\u2019])[A-Z]\\w"
)

_TITLED = _split_words(
    "book books novel novels series film films movie movies show shows song songs band bands album "
    "albums game games artist artists author authors musician musicians singer composer composers "
    "podcast magazine poem play painting piece brand company team teams dish recipe app breed "
    "restaurant organization company event festival class course type kind name names title"
)
ENGLISH = AnswerRules(
    language="en",
    asks={
        "when": (
            AnswerRule(
                asked=re.compile(
                    r"\bwhen\b|\b(?:what|which) (?:date|day|month|year|time|season|week|weekend)\b|"
                    r"\bhow long ago\b|\bhow recently\b"
                ),
                lower=_WHEN,
            ),
            AnswerRule(asked=re.compile(r"\bhow long\b(?! ago)"), lower=_DURATION),
        ),
        "number": (
            AnswerRule(
                asked=re.compile(
                    r"\bhow (?:many|much|often|old|far|tall|big)\b|\bwhat (?:number|age|amount)\b"
                ),
                lower=_NUMBER,
            ),
        ),
        "where": (
            AnswerRule(
                asked=re.compile(
                    r"\bwhere\b|\b(?:what|which) (?:\w{1,20} )?(?:city|cities|country|countries|"
                    r"places?|states?|towns?|locations?|areas?|parks?)\b"
                ),
                lower=_WHERE,
                cased=_WHERE_NAMED,
            ),
        ),
        "name": (
            AnswerRule(
                asked=re.compile(
                    rf"\b(?:what|which|whose)(?: \w{{1,20}}){{0,2}} (?:{_TITLED})\b|\bwho\b|"
                    r"\b(?:called|named|titled)\b"
                ),
                cased=_NAMED,
            ),
        ),
    },
    addresses=re.compile(r"\byou(?:r|rs|rself|['\u2019]\w{1,2})?\b"),
    tells=re.compile(
        r"\b(?:i|i['\u2019]\w{1,2}|my|mine|me|myself|we|our|ours|us|we['\u2019]\w{1,2})\b"
    ),
)

__all__ = [
    "ENGLISH",
    "TYPES",
    "AnswerRule",
    "AnswerRules",
    "ExpectedAnswer",
    "classify_expected_answer",
    "speaks_to_other",
]
