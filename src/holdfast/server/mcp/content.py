"""Resources and prompts of an application, offered to MCP clients beside our own."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import mcp_types as types
import msgspec

from holdfast.errors import UsageError
from holdfast.operations import Caller
from holdfast.tools import Peer

Read: TypeAlias = Callable[..., Awaitable[str | bytes] | str | bytes]
"""Gives the content; parts of a template's address come as keyword arguments."""
Write: TypeAlias = Callable[..., Awaitable[Any] | Any]
"""Gives a text, or messages of the protocol; arguments come as keyword arguments."""
ListKind: TypeAlias = Literal["tools", "prompts", "resources"]
_PART: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


class McpResource(msgspec.Struct, frozen=True, kw_only=True):
    """Something that clients can read at an address; `{name}` in it makes it a template."""

    uri: str
    read: Read
    name: str
    description: str = ""
    media_type: str = "text/plain"

    @property
    def is_template(self) -> bool:
        """Whether its address has parts to be filled in."""
        return bool(_PART.search(self.uri))

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the parts of an address, if it is one of this resource."""
        pattern = "".join(
            f"(?P<{part}>[^/]+)" if at % 2 else re.escape(part)
            for at, part in enumerate(_PART.split(self.uri))
        )
        found = re.fullmatch(pattern, uri)
        return found.groupdict() if found is not None else None


class McpPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that people choose in their client, with arguments that it needs or takes."""

    name: str
    write: Write
    description: str = ""
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    complete: Callable[[str, str], Sequence[str]] | None = None
    """Proposes values for an argument: takes its name and what was typed."""

    def to_prompt(self) -> types.Prompt:
        """Return it as clients list it."""
        arguments = [
            types.PromptArgument(name=name, required=name in self.required)
            for name in (*self.required, *self.optional)
        ]
        return types.Prompt(name=self.name, description=self.description, arguments=arguments)


class McpContent:
    """What an application offers; the same to every client that may read artifacts.

    Where what is read depends on who asks, the function takes a parameter `caller`; that of a
    prompt may take `peer`, which is the client that can be asked (`holdfast.tools.Peer`).
    """

    def __init__(
        self, *, resources: Sequence[McpResource] = (), prompts: Sequence[McpPrompt] = ()
    ) -> None:
        """Offer these.

        Raises:
            UsageError: two have the same address or name, or an address is one of ours.
        """
        self.resources = tuple(resources)
        self.prompts = {one.name: one for one in prompts}
        self.listeners: list[Callable[[str], None]] = []
        uris = [one.uri for one in self.resources]
        if len(set(uris)) < len(uris) or len(self.prompts) < len(prompts):
            raise UsageError(detail="Two resources, or two prompts, have the same name.")
        for uri in uris:
            if uri.startswith("holdfast:") or "://" not in uri:
                raise UsageError(detail=f"{uri!r} is no address of an application's own.")

    def find(self, uri: str) -> tuple[McpResource, dict[str, str]] | None:
        """Return the resource at an address, plain ones first."""
        for one in sorted(self.resources, key=lambda resource: resource.is_template):
            found = one.match(uri)
            if found is not None:
                return one, found
        return None

    def add_prompt(self, prompt: McpPrompt) -> None:
        """Offer a prompt from now on, in place of one of the same name; clients are told."""
        self.prompts[prompt.name] = prompt
        self.tell_list_changed("prompts")

    def tell_list_changed(self, kind: ListKind) -> None:
        """Tell clients that listen for it that a list is another one now, such as of tools."""
        self._tell(kind)

    def tell_changed(self, uri: str) -> None:
        """Tell clients that subscribed to an address that it reads otherwise now."""
        self._tell(uri)

    def _tell(self, what: str) -> None:
        for listener in tuple(self.listeners):
            listener(what)


async def call(
    function: Callable[..., Any], caller: Caller, given: dict[str, str], peer: Peer | None = None
) -> Any:  # noqa: ANN401 - what an application gives
    """Call an application's function with its arguments, and `caller` and `peer` if it wants."""
    values: dict[str, Any] = dict(given)
    wanted = inspect.signature(function).parameters
    values |= {
        name: value
        for name, value in (("caller", caller), ("peer", peer))
        if name in wanted and name not in given
    }
    found = function(**values)
    return await found if inspect.isawaitable(found) else found


__all__ = ["McpContent", "McpPrompt", "McpResource", "call"]
