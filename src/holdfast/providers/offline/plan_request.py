"""Tell a request for a plan from a sentence that merely has the word in it."""

from __future__ import annotations

import re

from holdfast.providers.lazy_patterns import compile_on_use

_MAX_SCANNED = 4_000
_BEGIN = r"(?:\A|[.!?;:\n]\s*(?:[-*]\s+)?|,\s+|\s(?=(?:and|then|but)\s))"
_POLITE = (
    r"(?:(?:hi|hello|hey|ok|okay|so|now|please|kindly|first|then|and|but|just|there)[,!]?\s+){0,4}"
    r"(?:(?:can|could|would|will) you\s+|help me\s+(?:to\s+)?|let'?s\s+|"
    r"(?:i|we)(?:'d| would)?\s+(?:need|want|like)\s+(?:you\s+)?(?:to\s+)?)?(?:please\s+)?"
)
_MAKES = (
    r"(?:(?:make|write|draft|create|give|produce|devise|propose|prepare|sketch|develop|suggest|"
    r"design|lay out|work out|come up with|put together|think up|build|outline|"
    r"show(?=\s+me\s+an?\s))(?:\s+down)?\s+(?:me\s+|us\s+)?)"
)
_QUALITY = (
    r"(?:(?!(?:that|which|of|with|in|for|to|and|from|the|my|our|your|class|struct|file|table|type|"
    r"model|function|method|module|page|column|field|test|object|called|named)\b)[\w-]+\s+){0,3}?"
)
_ARTICLE = r"(?:(?:an?|the|your|some|another|one)\s+)?"
_LINK = (
    r"(?=\s+(?:to|for|of|on|how|about|that|which|so|in order|towards?|covering|first|before|please)"
    r"\b|\s*[:,;—]|\s+[-–]\s|\s*[.?!]+(?:\s|\Z)|\s*\Z)"
)
_STEPS_LINK = (
    r"(?=\s+(?:to|needed|required|necessary|it takes|for\s+\w+ing|(?:that )?(?:i|you|we))\b)"
)
_CHANGE_WORDS = (
    "add|build|change|clean|configure|convert|correct|create|debug|delete|deploy|develop|document|"
    "extract|fix|implement|improve|install|integrate|introduce|make|mend|merge|migrate|move|"
    "optimi[sz]e|port|publish|refactor|release|remove|rename|repair|replace|restructure|rewrite|"
    "set up|ship|simplify|speed up|split|structure|support|switch|test|update|upgrade|write"
)
_REQUESTS = [
    compile_on_use(_BEGIN + _POLITE + pattern, re.IGNORECASE)
    for pattern in (
        rf"{_MAKES}{_ARTICLE}{_QUALITY}(?:plans?|roadmap){_LINK}",
        rf"(?:an?|some)\s+{_QUALITY}(?:plan|roadmap)(?=\s+(?:to|for|how)\b)",
        rf"{_MAKES}{_ARTICLE}(?:list of\s+)?{_QUALITY}steps{_STEPS_LINK}",
        r"plan(?:\s+out)?(?=\s*:\s|\s+(?:how|for|to|the|an?|my|our|your|this|these|what|some|each)\b)",
        r"what(?:'s| is| would be)\s+your plan(?=\s+(?:to|for|of|on)\b)",
        r"(?:what|which)\s+(?:(?:are|is|would be)\s+)?(?:the\s+|your\s+)?(?:\w+\s+)?steps?"
        r"(?=\s+(?:to|needed|required|necessary|for\s+\w+ing|are (?:needed|required|necessary)|"
        r"(?:would|should|do|can|could|must|will) (?:you|i|we|one|it take))\b)",
        r"(?:list|describe|name|tell me|explain)\s+(?:all\s+)?(?:the\s+|your\s+)?(?:\w+\s+)?steps"
        rf"{_STEPS_LINK}",
        r"how (?:would|should|could|do|can|might) (?:you|we|i|one)(?=\s+(?:(?:best )?(?:go about|"
        rf"approach|tackle|plan)|{_CHANGE_WORDS})\b)",
        r"break(?=\s.{1,300}\sinto (?:\w+ )?(?:steps|tasks)\b)",
    )
]
_REFUSES = compile_on_use(
    r"\b(?:don'?t|do not|never|no need to|without)\b[^.!?\n]{0,60}\bplan", re.I
)
_LEAD = compile_on_use(
    r"(?:[\s:,;—–-]+|(?:first|please|down)\b|(?:needed|required|necessary)(?= (?:to|for)\b)|"
    r"(?:are|is) (?:needed|required|necessary)\b|it takes(?= to\b)|"
    r"(?:that )?(?:would|should|do|can|could|must|will)? ?(?:you|i|we|one|it) "
    r"(?:(?:would|should|need to|have to|must|can|could) )?(?:take|follow|do)(?= (?:to|for)\b)|"
    r"(?:go about|approach|tackle|best)\b|"
    r"(?:so that|in order to|to|for|of|on|about|towards?|covering|that|which)\b|"
    r"how (?:to|(?:i|we|you|one|it) (?:can|could|should|would|will|might))\b|how\b)",
    re.IGNORECASE,
)
_TO_FILE = compile_on_use(
    r"\s+to\s+(?:an?\s+|the\s+)?(?:file\b|disk\b|[\w./-]*\w\.[A-Za-z]\w{0,9}\s*$)"
)
_INTO_STEPS = compile_on_use(r"\s+(?:down )?into (?:\w+ )?(?:steps|tasks)\b", re.I)


def find_planned_goal(text: str) -> str | None:
    """Return what a plan is asked for; `None` when no plan is asked for.

    An empty text means that a plan is asked for, but not for what.
    """
    if _REFUSES.search(text[:_MAX_SCANNED]):
        return None
    for request in _REQUESTS:
        found = request.search(text[:_MAX_SCANNED])
        if found is None:
            continue
        rest = text[found.end() :]
        if _TO_FILE.match(rest):
            return None
        before = text[: found.start()].strip(" \n\t,;:-")
        return _clean(rest) or _clean(before)
    return None


def _clean(text: str) -> str:
    """Leave out what only ties the goal to the request."""
    for _ in range(8):
        tie = _LEAD.match(text)
        if tie is None:
            break
        text = text[tie.end() :]
    text = _INTO_STEPS.sub("", text, count=1)
    return text.strip(" \n\t\"'`“”").rstrip(" .?!,;:").removesuffix(" please")
