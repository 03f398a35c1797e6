"""The root of all errors, and how one becomes a payload of the journal and comes back."""

from __future__ import annotations

import string
from typing import ClassVar

_FIELDS = string.Formatter()


class HoldfastError(Exception):
    """Base of all errors that Holdfast raises on purpose."""

    code: ClassVar[str] = "holdfast.error"
    is_retryable: ClassVar[bool] = False
    message: ClassVar[str] = "{detail}"
    next_step: ClassVar[str] = ""

    def __init__(self, **context: object) -> None:
        """Build the message from keyword fields; missing ones read `unknown`."""
        self.context: dict[str, object] = context
        super().__init__(_fill(self.message, context))

    @property
    def hint(self) -> str:
        """What to do next, in one sentence; may be empty."""
        return _fill(self.next_step, self.context)

    @classmethod
    def fields(cls) -> frozenset[str]:
        """Names of the keyword fields that the message and the hint use."""
        parsed = [*_FIELDS.parse(cls.message), *_FIELDS.parse(cls.next_step)]
        return frozenset(name for _, name, _, _ in parsed if name)

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-ready form from which `make_error_from_dict` rebuilds the error."""
        return {
            "code": self.code,
            "message": str(self),
            "hint": self.hint,
            "is_retryable": self.is_retryable,
            "context": {key: _simplify(value) for key, value in self.context.items()},
        }

    def __reduce__(self) -> tuple[object, ...]:
        """Survive pickling across process pools with all fields."""
        return (_rebuild, (type(self), self.context))


def _fill(template: str, context: dict[str, object]) -> str:
    names = {name for _, name, _, _ in _FIELDS.parse(template) if name}
    return template.format(**{name: context.get(name, "unknown") for name in names})


def _simplify(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): _simplify(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_simplify(item) for item in value]
    return str(value)


def _rebuild(cls: type[HoldfastError], context: dict[str, object]) -> HoldfastError:
    return cls(**context)


class TellModel(Exception):
    """Raise inside a tool to hand a text to the model instead of a result.

    `retry` says whether the model should correct its arguments and try again.
    """

    def __init__(self, text: str, *, retry: bool = True) -> None:
        """Keep the text for the model."""
        super().__init__(text)
        self.text = text
        self.retry = retry


def list_errors() -> dict[str, type[HoldfastError]]:
    """Every error class by its code, application subclasses included."""
    found: dict[str, type[HoldfastError]] = {}
    waiting: list[type[HoldfastError]] = [HoldfastError]
    while waiting:
        cls = waiting.pop(0)
        found.setdefault(cls.code, cls)
        waiting.extend(cls.__subclasses__())
    return found


def make_error_from_dict(data: dict[str, object]) -> HoldfastError:
    """Rebuild an error from `to_dict`; an unknown code becomes a HoldfastError."""
    cls = list_errors().get(str(data.get("code")))
    if cls is None:
        return HoldfastError(detail=str(data.get("message", "unknown error")))
    context = data.get("context")
    return cls(**context) if isinstance(context, dict) else cls()
