"""Instructions that a function writes: with each turn, from what the run was handed."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeAlias

import msgspec

from holdfast.errors import UsageError
from holdfast.hooks import ExecutionContext
from holdfast.tools import DepsT, Need, fill, read_need

Instructions: TypeAlias = Callable[..., str | Awaitable[str]]
"""Returns a part of the prompt; plain or `async`. Its parameters are filled by their types."""


class RunContext(msgspec.Struct, Generic[DepsT], frozen=True, kw_only=True):
    """What instructions know of the run that they are written for."""

    deps: DepsT
    """What the application handed to the run; `None` if nothing."""
    message: str
    """What the run was asked."""
    agent_name: str
    session_id: str
    run_id: str


class WrittenPart(msgspec.Struct, frozen=True, kw_only=True):
    """A function that writes a part of the prompt, and what it asks for by type."""

    function: Instructions
    context_parameter: str
    injected: tuple[Need, ...]
    needs: tuple[Need, ...]

    async def write(self, context: RunContext[object], execution: ExecutionContext) -> str:
        """Return the text; whatever the function raises ends the turn.

        Raises:
            UsageError: it returned no text.
        """
        passed = dict(fill(self.injected, context.deps, execution))
        if self.context_parameter:
            passed[self.context_parameter] = context
        written: object = self.function(**passed)
        if inspect.isawaitable(written):
            written = await written
        if not isinstance(written, str):
            name = getattr(self.function, "__name__", "a function")
            raise UsageError(detail=f"The instructions {name!r} returned {written!r:.80}, no text.")
        return written.strip()


def read_instructions(function: Instructions, agent: str) -> WrittenPart:
    """Return a function as a part of a prompt.

    Raises:
        UsageError: a parameter has no type, or none that a value can be recognised by.
    """
    name = getattr(function, "__name__", type(function).__name__)
    try:
        hints = typing.get_type_hints(inspect.unwrap(function), include_extras=False)
    except (NameError, TypeError) as error:
        detail = f"The type hints of the instructions {name!r} cannot be read: {error}"
        raise UsageError(detail=detail) from error
    context_parameter = ""
    injected: list[Need] = []
    needs: list[Need] = []
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name)
        if hint is None:
            raise UsageError(
                detail=f"The instructions {name!r} of {agent!r} have no type for "
                f"{parameter.name!r}; parameters are filled by their types."
            )
        if (typing.get_origin(hint) or hint) is RunContext:
            context_parameter = parameter.name
            needs += [
                read_need(parameter.name, asked, has_default=False, is_marked=False)
                for asked in typing.get_args(hint)
                if asked not in (typing.Any, type(None), object)
            ]
            continue
        has_default = parameter.default is not inspect.Parameter.empty
        need = read_need(parameter.name, hint, has_default=has_default, is_marked=False)
        injected.append(need)
        needs.append(need)
    return WrittenPart(
        function=function,
        context_parameter=context_parameter,
        injected=tuple(injected),
        needs=tuple(needs),
    )


async def write_instructions(
    parts: Sequence[WrittenPart],
    context: RunContext[object],
    execution: ExecutionContext,
) -> str:
    """Return the part of a prompt that functions write."""
    texts = [await part.write(context, execution) for part in parts]
    return "\n\n".join([text for text in texts if text])


__all__ = ["Instructions", "RunContext", "WrittenPart", "read_instructions", "write_instructions"]
