"""What was found out about endpoints, kept between processes, and found out again when it is old.

Servers are updated, and models exchanged behind the same name: after a week nothing is believed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import StorageError
from holdfast.private_files import PrivateJsonFile
from holdfast.providers.model import ToolMode
from holdfast.providers.wire.endpoint import OpenAIApi

FILE_NAME = "endpoints.json"
_VERSION = 1
_MAX_ENTRIES = 2_000
_BELIEVED_S = 7 * 86_400.0

SchemaWay: TypeAlias = Literal["responses", "chat", "prompted"]
"""How an answer of a schema is got: the API that obeys it, or words and a check."""


class _Entry(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=False):
    """One endpoint and model; empty means not found out."""

    base_url: str
    model: str
    api: str = ""
    tool_mode: str = ""
    schema_way: str = ""
    context_window: int = 0
    checked: float = 0.0
    """When the first of it was found out."""


class _File(msgspec.Struct):
    version: int
    endpoints: list[_Entry]

    def known(self) -> _Known:
        """Return the entries by what they are about; none of a newer Holdfast's."""
        entries = self.endpoints if self.version == _VERSION else []
        return {(entry.base_url, entry.model): entry for entry in entries}


_Known: TypeAlias = dict[tuple[str, str], _Entry]


class EndpointMemory:
    """Remembers per address and model which API works, how tools are called, schemas obeyed.

    It is only a shortcut: a file that is missing, damaged, from a newer Holdfast or not
    writable means that things are found out again, never an error. Addresses are kept
    without user, password and query values.
    """

    def __init__(self, path: Path | None, *, clock: Clock = SYSTEM) -> None:
        """Read from and write to `path`; None keeps everything in this process."""
        self._clock = clock
        self._file: PrivateJsonFile[_File] | None = None
        if path is not None:
            self._file = PrivateJsonFile(path, _File, empty=_make_empty, is_expendable=True)
        self._known: _Known | None = None

    def get(self, base_url: str, model: str) -> OpenAIApi | None:
        """Return which API was found to work, or None."""
        entry = self._find(base_url, model)
        return "chat" if entry.api == "chat" else "responses" if entry.api == "responses" else None

    def set(self, base_url: str, model: str, api: OpenAIApi) -> None:
        """Remember which API works."""
        self._update(base_url, model, api=api)

    def tool_mode(self, base_url: str, model: str, *, even_old: bool = False) -> ToolMode | None:
        """Return how the model was found to call tools, or None."""
        entry = self._find(base_url, model, even_old=even_old)
        for mode in ("native", "json_schema", "prompted"):
            if entry.tool_mode == mode:
                return mode
        return None

    def set_tool_mode(self, base_url: str, model: str, mode: ToolMode) -> None:
        """Remember how the model calls tools."""
        self._update(base_url, model, tool_mode=mode)

    def find_schema_way(self, base_url: str, model: str) -> SchemaWay | None:
        """Return how answers of a schema were got, or None."""
        entry = self._find(base_url, model)
        for way in ("responses", "chat", "prompted"):
            if entry.schema_way == way:
                return way
        return None

    def set_schema_way(self, base_url: str, model: str, way: SchemaWay) -> None:
        """Remember how answers of a schema are got."""
        self._update(base_url, model, schema_way=way)

    def find_window(self, base_url: str, model: str) -> int:
        """Return how many tokens the server said that it takes; 0 where it said nothing."""
        return self._find(base_url, model).context_window

    def set_context_window(self, base_url: str, model: str, tokens: int) -> None:
        """Remember how many tokens the server takes."""
        self._update(base_url, model, context_window=tokens)

    def forget(self, base_url: str) -> None:
        """Forget everything about one address."""
        self._change(lambda known: [known.pop(key) for key in list(known) if key[0] == base_url])

    def _find(self, base_url: str, model: str, *, even_old: bool = False) -> _Entry:
        found = self._list_entries().get((base_url, model))
        is_believed = found is not None and (even_old or self._is_fresh(found))
        return found if found is not None and is_believed else _Entry(base_url, model)

    def _is_fresh(self, entry: _Entry) -> bool:
        return 0 <= self._clock.now() - entry.checked <= _BELIEVED_S

    def _update(self, base_url: str, model: str, **found: str | int) -> None:
        def change(known: _Known) -> None:
            old = known.pop((base_url, model), None)
            if old is None or not self._is_fresh(old):
                old = _Entry(base_url, model, checked=self._clock.now())
            known[base_url, model] = msgspec.structs.replace(old, **found)

        self._change(change)

    def _change(self, change: Callable[[_Known], object]) -> None:
        change(self._list_entries())
        if self._file is None:
            return

        def merge(file: _File) -> _File:
            # Another process may have learnt something meanwhile.
            merged = file.known()
            change(merged)
            return _File(version=_VERSION, endpoints=list(merged.values())[-_MAX_ENTRIES:])

        try:
            self._known = self._file.change(merge).known()
        except StorageError:
            # Known in this process all the same; the next one finds out again.
            return

    def _list_entries(self) -> _Known:
        if self._known is None:
            self._known = self._read()
        return self._known

    def _read(self) -> _Known:
        try:
            return self._file.read().known() if self._file is not None else {}
        except StorageError:
            return {}


def _make_empty() -> _File:
    return _File(version=_VERSION, endpoints=[])
