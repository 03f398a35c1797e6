"""What of a parameter is a Python object: usable in this process, with what to send instead.

A parameter such as `agent_name: str | LocalAgent` takes an `Agent` from code of the same process;
over a network only the rest of the union travels.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import IO, Annotated, Any, TypeAlias

import msgspec

from holdfast.agents import Agent
from holdfast.providers import Model


class Local(msgspec.Struct, frozen=True):
    """Marks a type that cannot travel; `instead` says what to do where the runtime is elsewhere."""

    instead: str


LocalAgent: TypeAlias = Annotated[Agent, Local("register the agent there, and name it")]
LocalModel: TypeAlias = Annotated[Model, Local("configure the model there, and name it")]
LocalDeps: TypeAlias = Annotated[Any, Local("hand it to the agent in the process of the runtime")]
LocalPath: TypeAlias = Annotated[
    os.PathLike[str], Local("send the path as text, as it is on the machine of the runtime")
]
LocalFile: TypeAlias = Annotated[
    str | os.PathLike[str] | IO[bytes], Local("send the bytes of the file")
]
LocalFilePath: TypeAlias = Annotated[Path, Local("send the content of the file as data")]
LocalEvent: TypeAlias = Annotated[asyncio.Event, Local("ask for `once`, as often as needed")]

__all__ = [
    "Local",
    "LocalAgent",
    "LocalDeps",
    "LocalEvent",
    "LocalFile",
    "LocalFilePath",
    "LocalModel",
    "LocalPath",
]
