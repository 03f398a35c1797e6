"""What a server wants to know in the middle of a call, as questions for the attending person.

The form is foreign: its words are shown as the server's, few fields are taken, and what a person
answers is held against the type that the server asked for. An address is shown, never opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.canonical import JsonObject
from holdfast.mcp.text import make_readable
from holdfast.settings import is_loopback
from holdfast.tools import Attendant, Option, Question

MOST_FIELDS: Final = 16
_MOST_OPTIONS: Final = 20
_MOST_TRIES: Final = 3
_MOST_ANSWER: Final = 4_000
_SEND, _DECLINE, _OPENED = "Send my answers", "Decline", "I have opened it"
CANCEL: Final[JsonObject] = {"action": "cancel"}
DECLINE: Final[JsonObject] = {"action": "decline"}


async def elicit(endpoint: str, asked: JsonObject, attendant: Attendant) -> JsonObject:
    """Return what the person answers, in the protocol's form; `cancel` where none attends."""
    if asked.get("mode", "form") == "url":
        return await _ask_for_visit(endpoint, asked, attendant)
    schema = asked.get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(schema, dict) or not isinstance(fields, dict) or len(fields) > MOST_FIELDS:
        return CANCEL
    if not all(isinstance(field, dict) for field in fields.values()):
        return CANCEL
    given = schema.get("required")
    required = {str(name) for name in given} if isinstance(given, list) else set()
    told = ""
    for _ in range(_MOST_TRIES):
        first = _make_first(endpoint, asked, told)
        answers = await attendant.ask((first, *(_make_question(*one) for one in fields.items())))
        if answers is None or len(answers) != len(fields) + 1:
            return CANCEL
        if _SEND not in answers[0]:
            return DECLINE
        content, problems = _read_answers(fields, required, answers[1:])
        if not problems:
            return {"action": "accept", "content": content}
        told = "; ".join(problems)
    return CANCEL


async def _ask_for_visit(endpoint: str, asked: JsonObject, attendant: Attendant) -> JsonObject:
    url = asked.get("url")
    if not isinstance(url, str) or not _is_showable(url):
        return DECLINE
    host = urlsplit(url).hostname
    text = (
        f"The MCP server {endpoint} wants you to open an address of {host}:\n{url}\n"
        f"It says: {make_readable(str(asked.get('message', '')), 1_000)}"
    )
    options = (Option(label=_OPENED), Option(label=_DECLINE))
    answers = await attendant.ask((Question(question=text, header="address", options=options),))
    if answers is None or len(answers) != 1:
        return CANCEL
    return {"action": "accept"} if _OPENED in answers[0] else DECLINE


def _is_showable(url: str) -> bool:
    """Say whether a person can see from an address where it leads."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    is_plain = url.isascii() and url.isprintable() and not parts.username and len(url) <= 2_000
    return is_safe and is_plain and bool(host) and " " not in url


def _make_first(endpoint: str, asked: JsonObject, told: str) -> Question:
    text = (
        f"The MCP server {endpoint} asks: {make_readable(str(asked.get('message', '')), 1_000)}\n"
        "What you answer is sent to it. Never give it a password or a key."
    )
    if told:
        text = f"{text}\nNot sent yet: {told}."
    options = (Option(label=_SEND), Option(label=_DECLINE))
    return Question(question=text, header=endpoint[:60], options=options)


def _make_question(name: str, field: JsonObject) -> Question:
    shown = make_readable(str(field.get("title") or name), 120)
    described = make_readable(str(field.get("description") or ""), 500)
    text = f"{shown}: {described}" if described else shown
    if "default" in field:
        text += f" (otherwise {make_readable(str(field['default']), 200)})"
    choices = [Option(label=value) for value in list_choices(field)[:_MOST_OPTIONS]]
    if field.get("type") == "boolean":
        choices = [Option(label="yes"), Option(label="no")]
    return Question(
        question=text,
        header=make_readable(name, 60),
        options=tuple(choices),
        is_multiple=field.get("type") == "array",
    )


def list_choices(field: JsonObject) -> list[str]:
    """Return the values that a field may have; empty where it is free."""
    held = field.get("items") if field.get("type") == "array" else field
    if not isinstance(held, dict):
        return []
    found = held.get("enum")
    if isinstance(found, list):
        return [one for one in found if isinstance(one, str)]
    for key in ("oneOf", "anyOf"):
        several = held.get(key)
        if isinstance(several, list):
            made = [one.get("const") for one in several if isinstance(one, dict)]
            return [one for one in made if isinstance(one, str)]
    return []


def _read_answers(
    fields: JsonObject, required: set[str], answers: Sequence[tuple[str, ...]]
) -> tuple[JsonObject, list[str]]:
    content: JsonObject = {}
    problems: list[str] = []
    for (name, field), given in zip(fields.items(), answers, strict=True):
        words = [word[:_MOST_ANSWER] for word in given if word.strip()]
        if not words:
            if "default" in field:
                content[name] = field["default"]
            elif name in required:
                problems.append(f"{make_readable(name, 60)} is needed")
            continue
        try:
            content[name] = _read_value(field, words)
        except ValueError as error:
            problems.append(f"{make_readable(name, 60)} {error}")
    return content, problems


def _read_value(field: JsonObject, words: list[str]) -> Any:  # noqa: ANN401 - JSON
    choices, kind = list_choices(field), field.get("type", "string")
    if choices and not set(words) <= set(choices):
        raise ValueError("is none of the choices")
    if kind == "array":
        return words
    word = words[0].strip() if kind != "string" else words[0]
    if kind == "boolean":
        if word.lower() not in ("yes", "no", "true", "false"):
            raise ValueError("is neither yes nor no")
        return word.lower() in ("yes", "true")
    if kind in ("integer", "number"):
        try:
            value: float = int(word) if kind == "integer" else float(word)
        except ValueError:
            raise ValueError("is no number") from None
        low, high = field.get("minimum"), field.get("maximum")
        if isinstance(low, int | float) and value < low:
            raise ValueError(f"is below {low}")
        if isinstance(high, int | float) and value > high:
            raise ValueError(f"is above {high}")
        return value
    longest, shortest = field.get("maxLength"), field.get("minLength")
    if isinstance(longest, int) and len(word) > longest:
        raise ValueError(f"is longer than {longest}")
    if isinstance(shortest, int) and len(word) < shortest:
        raise ValueError(f"is shorter than {shortest}")
    return word


__all__ = ["CANCEL", "DECLINE", "MOST_FIELDS", "elicit", "list_choices"]
