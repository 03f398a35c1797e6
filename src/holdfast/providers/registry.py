"""Which providers there are: the built-in ones, and those that a person added."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import (
    AlreadyExists,
    ConfigError,
    HoldfastError,
    LLMAuthError,
    NotFound,
    SchemaTooNew,
    StorageDamaged,
    UsageError,
)
from holdfast.observability import Logger
from holdfast.private_files import PrivateJsonFile
from holdfast.providers.address import strip_address
from holdfast.providers.config import ProviderConfig, looks_like_secret, make_config
from holdfast.providers.endpoint_memory import FILE_NAME as MEMORY_FILE
from holdfast.providers.endpoint_memory import EndpointMemory, SchemaWay
from holdfast.providers.model import Model, ModelInfo
from holdfast.providers.presets import list_presets
from holdfast.providers.wire.endpoint import Api, Endpoint
from holdfast.providers.wire.http import HttpTransport

# Each kind of model is loaded with the first one of its kind: all of them together, with
# aiohttp, take 0.2 s, and a program seldom has more than one.
if TYPE_CHECKING:
    from holdfast.providers.provider_check import Checked, ProviderCheck

FILE_NAME = "providers.json"
_VERSION = 1
_log = Logger("holdfast.providers")

KeyLookup: TypeAlias = Callable[[str], str]
"""Gives the key that a variable holds, in the environment or the secrets file; else ''."""


class _File(msgspec.Struct, omit_defaults=True):
    version: int
    default: str = ""
    providers: list[dict[str, Any]] = []


class _Key:
    """A key that is looked up each time it is needed, and kept nowhere."""

    __slots__ = ("_lookup", "_name")

    def __init__(self, name: str, lookup: KeyLookup) -> None:
        self._name = name
        self._lookup = lookup

    def reveal(self) -> str:
        return self._lookup(self._name) if self._name else ""

    def __repr__(self) -> str:
        return f"_Key({self._name!r})"


class ProviderRegistry:
    """Built-in and added providers, and the models behind them.

    Added providers are kept in the state directory, in a file for its owner only, and
    without any key: a configuration holds the name of a variable, and the key itself is
    looked up when a request is sent. Built-in providers can be neither replaced nor
    removed.
    """

    def __init__(
        self,
        state_dir: Path | None,
        keys: KeyLookup,
        *,
        overrides: dict[str, str] | None = None,
        default: str = "",
        force_chat: bool = False,
        clock: Clock = SYSTEM,
    ) -> None:
        """Keep added providers under `state_dir`; None keeps them in this process only.

        `overrides` are other addresses of built-in providers (`OPENAI_BASE_URL`),
        `default` is the provider that the settings name.
        """
        self._stored: PrivateJsonFile[_File] | None = None
        if state_dir is not None:
            path = state_dir / FILE_NAME
            self._stored = PrivateJsonFile(path, _File, empty=lambda: _File(version=_VERSION))
        self._keys = keys
        self._overrides = overrides or {}
        self._default = default
        self._force_chat = force_chat
        self._clock = clock
        self._added = _File(version=_VERSION)
        self.offered: tuple[ProviderConfig, ...] = ()
        """Providers of plugins, which neither replace others nor are kept."""
        self.memory = EndpointMemory(
            state_dir / MEMORY_FILE if state_dir is not None else None, clock=clock
        )
        self.transport = HttpTransport()

    async def list_providers(self) -> list[ProviderConfig]:
        """Return all providers, added ones first, each group in alphabetical order."""
        added = [make_config(**fields) for fields in self._load().providers]
        taken = {*list_presets(), *(config.name for config in added)}
        added += [config for config in self.offered if config.name not in taken]
        built_in = [self._resolve_effective(config) for config in list_presets().values()]
        by_name = sorted(added, key=lambda config: config.name)
        return by_name + sorted(built_in, key=lambda config: config.name)

    async def get_provider(self, name: str) -> ProviderConfig:
        """Return one provider.

        Raises:
            NotFound: there is none of this name; the hint names the nearest.
        """
        found = await self.find_provider(name)
        if found is None:
            known = [config.name for config in await self.list_providers()]
            import difflib  # noqa: PLC0415 - only for those who made a mistake

            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            raise NotFound(kind="provider", value=name, nearest=near[0] if near else "")
        return found

    async def find_provider(self, name: str) -> ProviderConfig | None:
        """Return one provider, or None."""
        for config in await self.list_providers():
            if config.name == name:
                return config
        return None

    async def get_default_provider(self) -> ProviderConfig:
        """Return the provider that a bare model name means.

        The one that the settings or `providers add --default` name; else OpenAI or
        Anthropic when their key or address is set; else the offline model.
        """
        chosen = self._default or self._load().default
        if chosen:
            return await self.get_provider(chosen)
        if self._keys("OPENAI_API_KEY") or "openai" in self._overrides:
            return await self.get_provider("openai")
        if self._keys("ANTHROPIC_API_KEY"):
            return await self.get_provider("anthropic")
        return await self.get_provider("offline")

    @property
    def chosen_default(self) -> str:
        """The default provider that a person chose, if any."""
        return self._default or self._load().default

    async def validate_provider(self, config: ProviderConfig) -> bool:
        """Say whether a provider can be used as far as trying shows; see `check_provider`."""
        return (await self.check_provider(config)).is_ok

    async def check_provider(self, config: ProviderConfig, *, model: str = "") -> ProviderCheck:
        """Try a provider and say what is wrong with it, if anything; `model` is really asked.

        `checked` of the answer says what was looked at: without a model, a provider that has
        no server shows no more than that its package is there.
        """
        from holdfast.providers.provider_check import check_endpoint, make_failed_check  # noqa: PLC0415 - see above

        try:
            if not config.is_http:
                return await self._check_in_process(config, model)
            self._require_key(config)
            wanted = model or config.default_model
            ask = self._make_http_model(config, wanted) if wanted else None
        except HoldfastError as error:
            return make_failed_check(config, error)
        return await check_endpoint(
            config,
            self.endpoint(config),
            self.transport,
            ask=ask,
            is_named=bool(model),
            clock=self._clock,
        )

    async def list_models(self, config: ProviderConfig) -> tuple[str, ...]:
        """Return the models that a provider lists; raises LLMError if it cannot be asked."""
        from holdfast.providers.provider_check import list_models  # noqa: PLC0415 - see above

        return await list_models(self.endpoint(config), self.transport, clock=self._clock)

    async def add_provider(self, config: ProviderConfig, *, default: bool = False) -> None:
        """Add a provider, for this process and all later ones.

        Raises:
            AlreadyExists: the name is taken, by a built-in provider or an added one.
            ConfigError: a key stands in the configuration; nothing was stored.
        """
        if config.name in list_presets():
            raise AlreadyExists(kind="provider", value=config.name)

        def change(file: _File) -> None:
            if any(fields.get("name") == config.name for fields in file.providers):
                raise AlreadyExists(kind="provider", value=config.name)
            file.providers.append(config.model_dump(mode="json", exclude_defaults=True))
            if default:
                file.default = config.name

        self._change(change)

    async def remove_provider(self, name: str) -> None:
        """Remove an added provider.

        Raises:
            UsageError: it is built in.
            NotFound: there is none of this name.
        """
        if name in list_presets():
            raise UsageError(detail=f"The provider {name!r} is built in and cannot be removed.")

        def change(file: _File) -> None:
            kept = [fields for fields in file.providers if fields.get("name") != name]
            if len(kept) == len(file.providers):
                raise NotFound(kind="provider", value=name)
            file.providers[:] = kept
            if file.default == name:
                file.default = ""

        self._change(change)

    async def set_default_provider(self, name: str) -> None:
        """Make a provider the one that bare model names mean; '' takes the choice back."""
        if name:
            await self.get_provider(name)

        def change(file: _File) -> None:
            file.default = name

        self._change(change)

    def has_key(self, config: ProviderConfig) -> bool:
        """Say whether the variable that holds the provider's key is set."""
        return bool(config.key_env) and bool(self._keys(config.key_env))

    def open_model(self, config: ProviderConfig, model: str) -> Model:
        """Return one model of a provider; nothing is sent yet.

        Raises:
            UsageError: no model is named and the provider has no default.
            LLMAuthError: the provider needs a key and its variable is not set.
            MissingExtra: the provider needs a package that is not installed.
        """
        name = model or config.default_model
        if not name:
            raise UsageError(
                detail=f"Name a model of {config.name}, as in {config.name}:<model>; "
                f"`holdfast providers test {config.name}` lists them."
            )
        opened = self._open(config, name)
        mode = config.choose_tool_mode(name)
        is_vendors_own = not config.is_http or (
            not config.is_local and list_presets().get(config.name) == config
        )
        if not is_vendors_own:
            # Any server may be there, and some take a schema without obeying it.
            opened = self._make_structured(config, opened)
        if mode is None and config.is_http:
            place = self.endpoint(config).shown_url
            if config.is_local:
                return self._make_probed(config, opened, place)
            # What `providers test --tools` found out; else a server that is not the vendor's
            # own may have any model, and some write their calls as text.
            known = self.memory.tool_mode(place, name, even_old=True)
            mode = known or (None if is_vendors_own else "native")
        if mode is None:
            return opened
        from holdfast.providers.tool_modes import ToolModeModel  # noqa: PLC0415 - see above

        return ToolModeModel(opened, mode)

    async def close(self) -> None:
        """Close the connections of all models of this registry."""
        await self.transport.close()

    def endpoint(self, config: ProviderConfig) -> Endpoint:
        """Return the provider's address for the wire, with a key that is looked up late."""
        apis: dict[str, Api] = {"responses": "responses", "anthropic": "anthropic"}
        return Endpoint(
            provider=config.name,
            base_url=config.base_url,
            api=apis.get(config.api, "chat"),
            key=_Key(config.key_env, self._keys),
            key_env=config.key_env,
            headers=config.headers,
            timeouts=config.timeouts.make_wire_timeouts(),
            reasoning_back=config.reasoning_back,
            max_tokens_field=config.max_tokens_field,
            prompt_cache=config.prompt_cache,
        )

    async def find_endpoint_at(self, base_url: str, *, name: str) -> Endpoint:
        """Return an address that was used before, with the key of the provider that is there now.

        A key belongs to the address that it is configured for: where no provider is, none is
        sent, also if the provider of that name has moved elsewhere.
        """
        address = strip_address(base_url)
        here = [
            config
            for config in await self.list_providers()
            if config.is_http and strip_address(config.base_url) == address
        ]
        if here:
            chosen = min(here, key=lambda config: config.name != name)
            return msgspec.structs.replace(self.endpoint(chosen), provider=name)
        return Endpoint(provider=name, base_url=address)

    async def _check_in_process(self, config: ProviderConfig, model: str) -> ProviderCheck:
        """Try what has no server: the package, the file, and the model if one is named."""
        from holdfast.providers.provider_check import ProviderCheck, ask_briefly  # noqa: PLC0415 - see above

        if config.api == "offline":
            return ProviderCheck(
                provider=config.name, is_ok=True, checked="built_in", models=("offline",)
            )
        if model:
            begin = self._clock.monotonic()
            opened = self._open(config, model)
            try:
                await ask_briefly(opened)
            finally:
                await opened.close()
            took_s = self._clock.monotonic() - begin
            return ProviderCheck(
                provider=config.name, is_ok=True, checked="answer", latency_s=took_s
            )
        checked = _look_in_process(config)
        return ProviderCheck(provider=config.name, is_ok=True, checked=checked)

    def _open(self, config: ProviderConfig, name: str) -> Model:
        if config.api == "offline":
            from holdfast.providers.offline import OfflineModel  # noqa: PLC0415 - see above

            return OfflineModel(time=self._clock)
        if config.api == "gguf":
            from holdfast.providers.gguf import GgufModel  # noqa: PLC0415 - see above

            return GgufModel(
                Path(name).expanduser(),
                self.transport,
                context_window=config.context_window,
                time=self._clock,
            )
        if config.api == "litellm":
            from holdfast.providers.litellm import LiteLLMModel  # noqa: PLC0415 - see above

            return LiteLLMModel(
                name,
                key=_Key(config.key_env, self._keys),
                timeouts=config.timeouts.make_wire_timeouts(),
                time=self._clock,
            )
        self._require_key(config)
        for caution in config.cautions(has_key=self.has_key(config)):
            _log.warning("provider.unencrypted", provider=config.name, detail=caution)
        return self._make_http_model(config, name)

    def _make_http_model(self, config: ProviderConfig, name: str) -> Model:
        from holdfast.providers.tokens import TokenCounter  # noqa: PLC0415 - see above
        from holdfast.providers.wire import ResponsesOrChat, WireModel  # noqa: PLC0415 - see above

        endpoint = self.endpoint(config)
        info = ModelInfo(provider=config.name, model=name)
        if config.context_window is not None:
            info = msgspec.structs.replace(info, context_window=config.context_window)
        counter = TokenCounter(config.name, name)
        if config.api == "auto":
            return ResponsesOrChat(
                endpoint,
                name,
                self.transport,
                memory=self.memory,
                force_chat=self._force_chat,
                info=info,
                clock=self._clock,
                counter=counter,
            )
        if config.api == "responses" and self._force_chat:
            endpoint = msgspec.structs.replace(endpoint, api="chat")
        return WireModel(
            endpoint,
            name,
            self.transport,
            info=info,
            clock=self._clock,
            counter=counter,
        )

    def _make_structured(self, config: ProviderConfig, model: Model) -> Model:
        from holdfast.providers.structured import StructuredOutputModel  # noqa: PLC0415 - see above
        from holdfast.providers.wire import ResponsesOrChat  # noqa: PLC0415 - see above

        ways: dict[SchemaWay, Model] = {"chat": model}
        if isinstance(model, ResponsesOrChat):
            ways = {"chat": model.choose_api("chat")}
            if not self._force_chat:
                ways = {"responses": model, **ways}
        place = self.endpoint(config).shown_url
        return StructuredOutputModel(model, ways, self.memory, place)

    def _make_probed(self, config: ProviderConfig, model: Model, place: str) -> Model:
        from holdfast.providers.probe import find_context_window  # noqa: PLC0415 - see above
        from holdfast.providers.tool_probe import ProbedToolModel  # noqa: PLC0415 - see above

        # What the user says of the window is not asked of the server.
        find = find_context_window if config.context_window is None else None
        return ProbedToolModel(model, self.memory, place, find_window=find)

    def _require_key(self, config: ProviderConfig) -> None:
        if config.is_key_required and not self.has_key(config):
            raise LLMAuthError(
                provider=config.name, detail="there is none", key_env=config.key_env or "its key"
            )

    def _resolve_effective(self, config: ProviderConfig) -> ProviderConfig:
        """A built-in provider at the address that the settings give it."""
        url = self._overrides.get(config.name)
        if not url or url.rstrip("/") == config.base_url:
            return config
        fields = config.model_dump(exclude={"base_url", "is_key_required", "default_model"})
        # Another server has other models, and may want no key.
        return make_config(**fields, base_url=url)

    def _load(self) -> _File:
        stored = self._stored
        return self._added if stored is None else _make_usable(stored.read(), stored.path)

    def _change(self, change: Callable[[_File], None]) -> None:
        stored = self._stored
        if stored is None:
            change(self._added)
            return

        def guarded(file: _File) -> None:
            change(_make_usable(file, stored.path))
            self._refuse_keys(file)

        stored.change(guarded)

    def _refuse_keys(self, file: _File) -> None:
        """The last look before anything is stored: no key of any provider may be in it."""
        names = {str(fields.get("key_env", "")) for fields in file.providers}
        names |= {config.key_env for config in list_presets().values()}
        text = msgspec.json.encode(file).decode()
        held = [key for key in map(self._keys, filter(None, names)) if len(key) >= 8]
        if any(key in text for key in held) or looks_like_secret(text):
            raise ConfigError(detail="  - a key stands in the configuration; nothing was stored")


def _look_in_process(config: ProviderConfig) -> Checked:
    """Look for what a model in this process needs, without loading any; say what was seen."""
    if config.api == "litellm":
        from holdfast.providers.litellm import find_litellm  # noqa: PLC0415 - see above

        find_litellm()
        return "package"
    from holdfast.providers.gguf import check_gguf, require_xllamacpp  # noqa: PLC0415 - see above

    require_xllamacpp()
    if not config.default_model:
        return "package"
    check_gguf(Path(config.default_model).expanduser())
    return "file"


def _make_usable(file: _File, path: Path) -> _File:
    """Return a stored file if this Holdfast understands all of it; raises Damaged if not."""
    if file.version > _VERSION:
        raise SchemaTooNew(what=str(path), found=file.version, known=_VERSION)
    for fields in file.providers:
        try:
            make_config(**fields)
        except ConfigError as error:
            detail = "a provider in it is not valid"
            raise StorageDamaged(path=str(path), detail=detail) from error
    return file
