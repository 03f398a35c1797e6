"""SDKConfig: what an application says of a client, in one object."""

from __future__ import annotations

import enum
import os

import msgspec

from holdfast.canonical import JsonObject
from holdfast.client import AsyncClient
from holdfast.settings import Settings, load_settings
from holdfast.sync import Client
from holdfast.tools import Approver, AutoConfirm


class ProviderID(enum.StrEnum):
    """Names of providers, as they begin the name of a model: `f"{ProviderID.OPENAI}:gpt-5.2"`."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    OPENROUTER = "openrouter"
    OLLAMA = "ollama"
    LMSTUDIO = "lmstudio"
    LLAMACPP = "llamacpp"
    OFFLINE = "offline"


class SDKConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where records are kept, where agents work, which model speaks, and who consents.

    What is left out is as the settings say: the environment, a config file, the defaults.
    """

    storage_path: str | os.PathLike[str] | None = None
    project_dir: str | os.PathLike[str] | None = None
    model: str = ""
    auto_confirm: bool = False
    """Whether calls that ask are consented to; what is denied stays denied."""
    settings: dict[str, object] = msgspec.field(default_factory=dict)
    """Further settings by their dotted names: `{"memory.remember_conversations": "off"}`."""

    def as_dict(self) -> JsonObject:
        """Return it as plain JSON."""
        return {
            "storage_path": os.fspath(self.storage_path) if self.storage_path is not None else None,
            "project_dir": os.fspath(self.project_dir) if self.project_dir is not None else None,
            "model": self.model,
            "auto_confirm": self.auto_confirm,
            "settings": dict(self.settings),
        }

    def load(self) -> Settings:
        """Return the settings of a client.

        Raises:
            ConfigError: they are wrong; all mistakes are named.
        """
        chosen = dict(self.settings)
        if self.project_dir is not None:
            chosen["workspace"] = os.fspath(self.project_dir)
        if self.model:
            chosen["model.name"] = self.model
        return load_settings(overrides=chosen).settings

    def open_async(self) -> AsyncClient:
        """Return a client that is awaited."""
        client = AsyncClient(storage_path=self.storage_path, settings=self.load())
        client.approver = self._choose_approver()
        return client

    def open_sync(self) -> Client:
        """Return a client that blocks."""
        client = Client(storage_path=self.storage_path, settings=self.load())
        client.approver = self._choose_approver()
        return client

    def _choose_approver(self) -> Approver | None:
        return AutoConfirm() if self.auto_confirm else None


__all__ = ["ProviderID", "SDKConfig"]
