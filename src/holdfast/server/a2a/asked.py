"""What a peer's message asks for, checked before anything begins."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec

from holdfast.messages import FilePart, TextPart
from holdfast.server.a2a.failures import A2aRefused

_LONGEST_ID: Final = 200
_MOST_PARTS: Final = 100
_MOST_HISTORY: Final = 100
_CONTENTS: Final = ("text", "raw", "url", "data")


class AskedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a peer; an empty `task_id` begins a task."""

    id: str
    task_id: str
    context_id: str
    content: tuple[TextPart | FilePart, ...]
    decision: bool | None = None
    """What a data part `{"approved": …}` says to an approval."""
    reason: str = ""
    waits: bool = True
    history: int | None = None

    @property
    def text(self) -> str:
        """All of its texts."""
        return "\n".join(part.text for part in self.content if isinstance(part, TextPart))


def read_message(params: dict[str, Any]) -> AskedMessage:
    """Return what a `SendMessageRequest` asks for.

    Raises:
        A2aRefused: it cannot be meant; nothing was begun.
    """
    message = _read_object(params, "message", is_needed=True)
    configuration = _read_object(params, "configuration", where="configuration")
    if configuration.get("taskPushNotificationConfig"):
        raise A2aRefused("PUSH_NOTIFICATION_NOT_SUPPORTED", "there are no push notifications here")
    _check_modes(configuration.get("acceptedOutputModes"))
    if message.get("role") not in ("ROLE_USER", 1):
        raise A2aRefused("INVALID_PARAMS", "the role of a message is ROLE_USER", "message.role")
    parts = message.get("parts")
    if not isinstance(parts, list) or not 0 < len(parts) <= _MOST_PARTS:
        said = f"a message has 1 to {_MOST_PARTS} parts"
        raise A2aRefused("INVALID_PARAMS", said, "message.parts")
    decision, reason = _read_decision(parts)
    return AskedMessage(
        id=read_id(message, "messageId", "message.messageId"),
        task_id=read_id(message, "taskId", "message.taskId", is_needed=False),
        context_id=read_id(message, "contextId", "message.contextId", is_needed=False),
        content=tuple(_read_part(one, f"message.parts[{at}]") for at, one in enumerate(parts)),
        decision=decision,
        reason=reason,
        waits=not read_flag(configuration, "returnImmediately"),
        history=read_count(configuration, "historyLength", _MOST_HISTORY),
    )


def read_id(given: dict[str, Any], name: str, where: str = "", *, is_needed: bool = True) -> str:
    """Return an id."""
    value = given.get(name) or ""
    if not isinstance(value, str) or len(value) > _LONGEST_ID or (is_needed and not value):
        said = f"{name} is a text of at most {_LONGEST_ID} characters"
        raise A2aRefused("INVALID_PARAMS", said, where or name)
    return value


def read_count(given: dict[str, Any], name: str, most: int) -> int | None:
    """Return a number, at most so large; `None` where there is none."""
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise A2aRefused("INVALID_PARAMS", f"{name} is a number from 0 on", name)
    return min(value, most)


def read_flag(given: dict[str, Any], name: str) -> bool:
    """Return a truth."""
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise A2aRefused("INVALID_PARAMS", f"{name} is true or false", name)
    return value


def _read_object(
    given: dict[str, Any], name: str, *, where: str = "", is_needed: bool = False
) -> dict[str, Any]:
    value = given.get(name)
    if value is None and not is_needed:
        return {}
    if not isinstance(value, dict):
        raise A2aRefused("INVALID_PARAMS", f"{name} is an object", where or name)
    return value


def _check_modes(given: object) -> None:
    if not given:
        return
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        where = "configuration.acceptedOutputModes"
        raise A2aRefused("INVALID_PARAMS", "the accepted modes are a list of texts", where)
    if not any(one in ("text/plain", "text/*", "*/*") for one in given):
        raise A2aRefused("CONTENT_TYPE_NOT_SUPPORTED", "answers are text/plain")


def _read_part(part: object, where: str) -> TextPart | FilePart:
    if not isinstance(part, dict):
        raise A2aRefused("INVALID_PARAMS", "a part is an object", where)
    found = [name for name in _CONTENTS if name in part]
    if len(found) != 1:
        raise A2aRefused("INVALID_PARAMS", f"a part has one of {', '.join(_CONTENTS)}", where)
    [kind] = found
    value, media = part[kind], str(part.get("mediaType") or "")
    if kind == "data":
        return TextPart(text=msgspec.json.encode(value).decode())
    if not isinstance(value, str) or not value:
        raise A2aRefused("INVALID_PARAMS", f"{kind} is a text", f"{where}.{kind}")
    if kind == "text":
        return TextPart(text=value)
    name = str(part.get("filename") or "")[:_LONGEST_ID]
    media = media or "application/octet-stream"
    if kind == "url":
        if not value.startswith(("https://", "http://")):
            # No data:, no file:, no artifact: of ours.
            raise A2aRefused("INVALID_PARAMS", "a url is http or https", f"{where}.url")
        return FilePart(media_type=media, name=name, url=value)
    try:
        # Either alphabet, with padding or without: JSON of Protocol Buffers may have any of them.
        whole = value.rstrip("=").replace("-", "+").replace("_", "/")
        data = base64.b64decode(whole + "=" * (-len(whole) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise A2aRefused("INVALID_PARAMS", "raw is base64", f"{where}.raw") from error
    return FilePart(media_type=media, name=name, data=data)


def _read_decision(parts: list[Any]) -> tuple[bool | None, str]:
    for part in parts:
        data = part.get("data") if isinstance(part, dict) else None
        if isinstance(data, dict) and isinstance(data.get("approved"), bool):
            return data["approved"], str(data.get("reason") or "")
    return None, ""


__all__ = ["AskedMessage", "read_count", "read_flag", "read_id", "read_message"]
