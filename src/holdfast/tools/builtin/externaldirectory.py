"""The `externaldirectory` tool: bring a directory outside the workspace into reach."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from pydantic import Field

from holdfast.errors import PermissionDenied, TellModel, UsageError
from holdfast.sandbox import Workspace
from holdfast.state import ScopedState
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import tool
from holdfast.tools.result import ToolResult
from holdfast.tools.target import Target

GRANTS_KEY = "external_directories"


class _Granted(msgspec.Struct):
    path: str
    is_writable: bool = False


def _list_directory_targets(arguments: Mapping[str, Any], _workspace: Workspace) -> Sequence[str]:
    # The real path, so that a rule for one directory cannot be met by a link to another.
    return (posixpath.realpath(str(arguments.get("path", ""))),)


@tool(
    effect="idempotent",
    permission="ask",
    tags=("files",),
    target=Target(kind="path", resolve=_list_directory_targets),
)
async def externaldirectory(
    path: Annotated[str, Field(pattern="^/", description="Absolute path of the directory")],
    context: ToolContext,
    writable: Annotated[bool, Field(description="Also for writing")] = False,
) -> ToolResult:
    """Bring a directory outside the workspace into reach of the file tools.

    Afterwards use absolute paths below it. For the rest of this session, for reading
    only unless writable is set.
    """
    try:
        real = await context.look(context.workspace.grant, path, is_writable=writable)
    except UsageError as error:
        raise TellModel(str(error)) from error
    state = context.state.internal
    granted = msgspec.convert(await state.get(GRANTS_KEY) or [], list[_Granted])
    kept = [one for one in granted if one.path != real]
    kept.append(_Granted(path=real, is_writable=writable))
    await state.set(GRANTS_KEY, msgspec.to_builtins(kept))
    how = "reading and writing" if writable else "reading"
    return ToolResult(f"{real} is in reach for {how}.", title=real, metadata={"path": real})


async def restore_grants(workspace: Workspace, state: ScopedState) -> tuple[str, ...]:
    """Grant again what a session was granted, when it is resumed; return what is gone."""
    gone: list[str] = []
    row = await state.environment.store.read(state.bound, GRANTS_KEY)
    kept = row.data.get("value") if row is not None else None
    for one in msgspec.convert(kept or [], list[_Granted]):
        try:
            workspace.grant(one.path, is_writable=one.is_writable)
        except (UsageError, PermissionDenied):
            gone.append(one.path)
    return tuple(gone)
