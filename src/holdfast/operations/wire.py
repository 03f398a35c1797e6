"""Answers and errors as JSON, and back: what every face that speaks over a network uses.

An answer that was encoded and decoded with the response type of its operation is equal to what
it was. The one exception is the `output` of an agent whose output type is a class: it arrives as
plain JSON, because the class is known to the process that registered the agent only.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
import pydantic_core

from holdfast.canonical import JsonObject
from holdfast.errors import HoldfastError, make_error_from_dict
from holdfast.operations.operation import Operation, StreamOperation

T = TypeVar("T")
INTERNAL: Final = "internal"
"""The code of a failure that is no error of ours; its text stays in the log of the runtime."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error as it travels: its stable code, what happened, and what to do next."""

    code: str
    message: str
    hint: str = ""
    is_retryable: bool = False
    context: JsonObject = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, error: BaseException) -> Problem:
        """Describe an error; of one that is not ours, nothing but that it happened."""
        if isinstance(error, HoldfastError):
            return msgspec.convert(error.to_dict(), cls)
        return cls(code=INTERNAL, message="Something went wrong inside; the log says what.")

    def to_error(self) -> HoldfastError:
        """Return the error again, of the same class; an unknown code becomes a HoldfastError."""
        return make_error_from_dict(msgspec.to_builtins(self))


def encode_answer(answer: object) -> bytes:
    """Return an answer, or an item of a stream, as JSON."""
    return _encode(answer)


def decode_answer(operation: Operation[..., T] | StreamOperation[..., T], data: bytes | str) -> T:
    """Return an answer, or an item of a stream, of an operation.

    Raises:
        msgspec.ValidationError: it is none of this operation.
    """
    answer: T = msgspec.json.decode(data, type=operation.response)
    return answer


def _to_json(value: Any) -> Any:
    # Only the output of an agent can be of a class that msgspec does not know.
    return pydantic_core.to_jsonable_python(value)


_encode = msgspec.json.Encoder(enc_hook=_to_json).encode

__all__ = ["INTERNAL", "Problem", "decode_answer", "encode_answer"]
