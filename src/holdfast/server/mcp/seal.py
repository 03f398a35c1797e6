"""The state that a client of MCP brings back with a person's answer: sealed, for it alone."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from typing import Final

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError
from holdfast.ids import make_random_token
from holdfast.operations import Caller
from holdfast.private_files import PrivateJsonFile
from holdfast.runtime import Runtime

KEY_FILE: Final = "mcp-state-key.json"
_LONGEST: Final = 256_000


class _KeptKey(msgspec.Struct, forbid_unknown_fields=True):
    key: str = ""


class _State(msgspec.Struct, frozen=True):
    run_id: str
    tenant: str
    subject: str
    tool: str
    answers: dict[str, JsonObject] = {}


class StateSeal:
    """Seals which run a client comes back to, so that it can neither read nor make up another.

    Several servers of one state directory open each other's; those of several machines do where
    `secrets.link_key` is the same.
    """

    def __init__(self, runtime: Runtime) -> None:
        """Seal with the key of the settings, or of the state directory, made if there is none."""
        chosen = runtime.settings.secrets.link_key
        if chosen is not None:
            secret = chosen.get_secret_value().encode()
        else:
            path = runtime.settings.storage_path / KEY_FILE
            file = PrivateJsonFile(path, _KeptKey, empty=_KeptKey)

            def fill(kept: _KeptKey) -> None:
                kept.key = kept.key or make_random_token(32)

            secret = file.change(fill).key.encode()
        key = hmac.digest(secret, b"holdfast mcp state", "sha256")
        self._fernet = Fernet(base64.urlsafe_b64encode(key))

    def close(
        self,
        run_id: str,
        caller: Caller,
        tool: str,
        answers: Mapping[str, JsonObject] | None = None,
    ) -> str:
        """Return the state for a run that a caller began by calling a tool, with its answers.

        Raises:
            UsageError: the answers are too long to be carried back and forth.
        """
        state = _State(run_id, caller.tenant, caller.subject, tool, dict(answers or {}))
        if len(msgspec.json.encode(state)) > _LONGEST // 2:
            raise UsageError(detail="The answers to this call are too long.")
        return self._fernet.encrypt(msgspec.json.encode(state)).decode()

    def open(self, state: str, caller: Caller, tool: str) -> tuple[str, dict[str, JsonObject]]:
        """Return the run of a state, and what the client has answered before.

        Raises:
            UsageError: it is none that this caller was given for this tool.
        """
        try:
            if len(state) > _LONGEST:
                raise InvalidToken
            found = msgspec.json.decode(self._fernet.decrypt(state.encode()), type=_State)
        except (InvalidToken, ValueError):
            found = None
        mine = (caller.tenant, caller.subject, tool)
        if found is None or (found.tenant, found.subject, found.tool) != mine:
            raise UsageError(detail="The request_state is none that you were given for this call.")
        return found.run_id, found.answers


__all__ = ["KEY_FILE", "StateSeal"]
