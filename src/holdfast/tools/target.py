"""What a call touches: the text that permission patterns are matched against."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.sandbox import Workspace

TargetKind: TypeAlias = Literal["none", "path", "command", "host", "agent", "text"]
Resolver: TypeAlias = Callable[[Mapping[str, Any], Workspace], Sequence[str]]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of thing, and how to read it from the final arguments of a call."""

    kind: TargetKind
    resolve: Resolver

    def of(self, arguments: Mapping[str, Any], workspace: Workspace) -> tuple[str, ...]:
        """Everything that the call touches; `*` for a tool that touches nothing nameable."""
        if self is NO_TARGET:
            return ("*",)
        return tuple(self.resolve(arguments, workspace)) or ("*",)


NO_TARGET = Target(kind="none", resolve=lambda _arguments, _workspace: ())


def make_path_target(argument: str, default: str = ".") -> Target:
    """The real path of a file or directory argument, links resolved."""

    def resolve(arguments: Mapping[str, Any], workspace: Workspace) -> Sequence[str]:
        return (workspace.canonical(str(arguments.get(argument, default))),)

    return Target(kind="path", resolve=resolve)


def make_paths_target(argument: str, default: tuple[str, ...] = (".",)) -> Target:
    """The real paths of an argument that lists several."""

    def resolve(arguments: Mapping[str, Any], workspace: Workspace) -> Sequence[str]:
        return [workspace.canonical(str(path)) for path in arguments.get(argument) or default]

    return Target(kind="path", resolve=resolve)


def make_command_target(argument: str) -> Target:
    """The programs of a command line, each as it will run; the line itself if it is unread."""

    def resolve(arguments: Mapping[str, Any], _workspace: Workspace) -> Sequence[str]:
        from holdfast.policy import parse_command  # noqa: PLC0415 - first use

        return parse_command(str(arguments.get(argument, ""))).targets()

    return Target(kind="command", resolve=resolve)


def make_host_target(argument: str) -> Target:
    """The host of a URL argument, with its port where that is not 443."""

    def resolve(arguments: Mapping[str, Any], _workspace: Workspace) -> Sequence[str]:
        from yarl import URL  # noqa: PLC0415 - 20 ms

        from holdfast.policy import join_port  # noqa: PLC0415 - as above

        try:
            # The same parser as the client's, so that both see the same host.
            url = URL(str(arguments.get(argument, "")))
            host, port = url.host or "", url.port
        except ValueError:
            return ("",)
        if not host or port in (None, 443):
            return (host,)
        return (join_port(host, port),)

    return Target(kind="host", resolve=resolve)


def make_text_target(argument: str) -> Target:
    """The argument itself, as text."""
    return Target(
        kind="text", resolve=lambda arguments, _workspace: (str(arguments.get(argument, "")),)
    )
