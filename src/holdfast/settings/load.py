"""Load settings: collect all sources, check everything, report all mistakes at once."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from pydantic import SecretStr, ValidationError

from holdfast.errors import ConfigError
from holdfast.settings.definition import Settings
from holdfast.settings.environment import find_working_directory, process_environment
from holdfast.settings.files import Mistake, UnreadableFile, parse_variables, read_text
from holdfast.settings.keys import CONFIG_VARIABLE, FILE_SUFFIX, list_keys, list_sections
from holdfast.settings.mcp import McpEndpoint, check_names
from holdfast.settings.secret_files import list_secret_files, read_secret_file
from holdfast.settings.service import JwtSettings, ServerSettings
from holdfast.settings.sources import Collector, FoundSetting, Rank
from holdfast.settings.unvouched import UnvouchedSettings

SECRETS_FILE: Final = ".holdfast/secrets.env"
HOOKS_FOLDER: Final = ".holdfast/hooks"
_FILES: Final = ("holdfast.toml", ".env", SECRETS_FILE)
_PROJECT_RANKS: Final = frozenset({Rank.PROJECT, Rank.OVERLAY, Rank.DOTENV})
_BASE_URLS: Final = {
    "model.openai_base_url": ("secrets.openai_api_key", "api.openai.com"),
    "model.anthropic_base_url": ("secrets.anthropic_api_key", "api.anthropic.com"),
}
_ENDPOINTS: Final = "mcp_endpoints"
_SERVERS: Final = "tools.language_servers"
_NOT_FOR_PROJECTS: Final = {
    _SERVERS: "have a program started",
    # The process that says where records go could have them sent elsewhere, or kept nowhere.
    "storage.url": "say where records are kept",
    "storage.wakeups_url": "say where workers are woken",
    # What proves that records were not changed must not be led elsewhere by what they are about.
    "audit.anchor": "say where records are proved",
    "audit.anchor_interval_s": "say how often records are proved",
    **{
        f"audit.{name}": "say what is written down, and who is sent it"
        for name in ("enabled", "syslog", "webhook", "webhook_networks")
    },
    **{
        f"telemetry.{name}": "say who is sent what runs did"
        for name in ("otlp_url", "content", "errors")
    },
    # Whoever names the server is sent the key, and what people type.
    "remote.url": "name the server that is asked",
    **{
        f"server.{name}": "say who may reach the server, and how far"
        for name in (
            # What is added to it is closed to projects until it is named here.
            *(set(ServerSettings.model_fields) - {"port", "grace_s", "heartbeat_s", "jwt"}),
            *(f"jwt.{field}" for field in JwtSettings.model_fields),
        )
    },
    "plugins.enabled": "have code of installed packages loaded",
    "artifacts.url": "say where artifacts are kept",
    "artifacts.endpoint_url": "say where artifacts are kept",
    # What lies there counts as the user's own, which needs no trust.
    "home_dir": "say whose skills need no trust",
}
_LOCAL_NAMES: Final = frozenset({"localhost", "host.docker.internal"})


class LoadedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, and where each value came from."""

    settings: Settings
    sources: Mapping[str, str]
    files: tuple[Path, ...]
    secret_files: tuple[Path, ...]
    environ: Mapping[str, str]

    def __repr__(self) -> str:
        """The settings, without the environment, which holds keys."""
        return f"LoadedSettings(settings={self.settings!r}, files={self.files!r})"

    def find_source(self, key: str) -> str:
        """Where a value came from: `default`, `holdfast.toml:12`, `environment AGENT_MODEL`…"""
        return self.sources[key]

    def read_value(self, key: str) -> object:
        """The value of a dotted key; secrets stay wrapped."""
        return _read_value(self.settings, key)

    def rows(self) -> list[dict[str, object]]:
        """Every setting with value and source, ready to print; secrets are hidden."""
        return list_rows(self.settings, self.sources)

    def secret(self, variable: str) -> SecretStr | None:
        """A key by the name of its variable, for providers that have no setting.

        Looks into the environment, the file that `NAME_FILE` names there, the secrets file and
        `.env`, in this order, each
        time it is called; nothing is kept.

        Raises:
            ConfigError: a file changed since the start and can no longer be read.
        """
        given = self.environ.get(variable, "").strip()
        if given:
            return SecretStr(given)
        named = list_secret_files(
            {
                name: value
                for name, value in self.environ.items()
                if name == f"{variable}{FILE_SUFFIX}"
            }
        )
        for path in named.values():
            try:
                return SecretStr(read_secret_file(path))
            except UnreadableFile as error:
                where = f"environment {variable}{FILE_SUFFIX}"
                raise make_config_error([Mistake(source=where, text=error.text)]) from None
        for path in self.secret_files:
            try:
                text = read_text(path, is_private=path == self.settings.secrets.file)
            except UnreadableFile as error:
                raise make_config_error([Mistake(source=str(path), text=error.text)]) from None
            for item in reversed(parse_variables(text or "")[0]):
                if item.name == variable and item.value.strip():
                    return SecretStr(item.value.strip())
        return None


def list_rows(settings: Settings, sources: Mapping[str, str]) -> list[dict[str, object]]:
    """Return every setting with its value and source, ready to print; secrets are hidden.

    The source is empty where it is not known, as of settings that a program made by itself.
    """
    rows: list[dict[str, object]] = []
    for name, key in list_keys().items():
        value = _read_value(settings, name)
        if key.is_secret and value is not None:
            value = "(hidden)"
        elif isinstance(value, Path):
            value = str(value)
        elif isinstance(value, dict):
            value = {name: one.said() for name, one in value.items()}
        rows.append({"key": name, "value": value, "source": sources.get(name, "")})
    return rows


def _read_value(settings: Settings, key: str) -> object:
    value: object = settings
    for part in key.split("."):
        value = getattr(value, part)
    return value


def load_settings(
    *,
    overrides: Mapping[str, object] | None = None,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """Read every source and return frozen settings with the source of each value.

    `overrides` are explicit arguments by dotted key (`{"storage.state_dir": path}`) and
    beat everything; None counts as not given. `cwd` and `environ` default to those of
    the process. Nothing is created or changed.

    Raises:
        ConfigError: anything is wrong anywhere; `detail` has one line per mistake, and
            `mistakes` the same as a list. Secrets are in neither.
    """
    env = process_environment() if environ is None else environ
    here = (find_working_directory() if cwd is None else cwd).absolute()
    collector = Collector(env, here)
    secret_files = _collect(collector, overrides or {})
    chosen, sources = _validate(collector)
    _fill_defaults(collector, chosen, sources)
    _check_places(collector, chosen)
    _check_key_leaks(collector, chosen)
    _check_gaps(collector, chosen)
    if collector.mistakes:
        raise make_config_error(collector.mistakes)
    return LoadedSettings(
        settings=Settings.model_validate(_nest(chosen)),
        sources=sources,
        files=tuple(collector.files),
        secret_files=secret_files,
        environ=env,
    )


def vouch_for(path: Path, *, overrides: Mapping[str, object] | None = None) -> bool:
    """Obey settings from now on that a command could have made; says whether they were in doubt.

    `overrides` are those with which the settings are loaded.

    Raises:
        UsageError: a command that could change them is still running.
        StorageError: it could not be noted.
    """
    collector = Collector(process_environment(), find_working_directory())
    _collect(collector, overrides or {})
    return any([unvouched.accept(path) for unvouched in _list_unvouched(collector)])


def _collect(collector: Collector, overrides: Mapping[str, object]) -> tuple[Path, ...]:
    """Read all sources; return the files that may hold further keys."""
    collector.add_arguments(overrides)
    collector.add_environment()
    dotenv = collector.search_upwards(".env")
    if dotenv is not None:
        collector.add_variables(dotenv, Rank.DOTENV)
    _collect_toml(collector)
    secrets = _collect_secrets(collector)
    return tuple(path for path in (secrets, dotenv) if path is not None)


def _collect_toml(collector: Collector) -> None:
    user = collector.find_standard_dir("XDG_CONFIG_HOME", ".config")
    if user is not None:
        collector.add_toml(user / "config.toml", Rank.USER)
    project = _collect_project(collector)
    wanted = collector.find_strongest_raw("env")
    if project is None or wanted is None:
        return
    try:
        chosen = wanted.key.validate(wanted.value)
    except ValidationError:
        return  # told together with all other values
    collector.add_toml(project.with_name(f"{project.stem}.{chosen}.toml"), Rank.OVERLAY)


def _collect_project(collector: Collector) -> Path | None:
    """Read the project file; return where it is or would be, or None if that is unknown."""
    named = collector.environ.get(CONFIG_VARIABLE, "").strip()
    if named:
        try:
            project = _resolve_absolute(named, collector.cwd, collector.home())
        except ValueError as error:
            collector.note(f"environment {CONFIG_VARIABLE}", str(error))
            return None
        collector.add_toml(project, Rank.PROJECT, is_needed=True)
        return project
    found = collector.search_upwards("holdfast.toml")
    if found is not None:
        collector.add_toml(found, Rank.PROJECT)
        return found
    return (collector.find_repository_root() or collector.cwd) / "holdfast.toml"


def _collect_secrets(collector: Collector) -> Path | None:
    """Read the secrets file: the named one, which must exist, else the standard one."""
    named = collector.find_strongest_raw("secrets.file")
    if named is not None:
        if not isinstance(named.value, str | Path):
            return None  # told together with all other values
        try:
            given = _resolve_absolute(named.value, named.base, collector.home())
        except ValueError:
            return None  # likewise
        collector.add_variables(given, Rank.SECRETS, is_needed=True)
        return given
    path = collector.search_upwards(SECRETS_FILE)
    if path is not None:
        collector.add_variables(path, Rank.SECRETS)
        collector.found.append(
            FoundSetting(
                key=list_keys()["secrets.file"],
                value=path,
                source="found",
                rank=Rank.DEFAULT,
                base=path.parent,
            )
        )
    return path


def _validate(collector: Collector) -> tuple[dict[str, tuple[object, Rank]], dict[str, str]]:
    """Check every value of every source; keep the strongest of each key."""
    chosen: dict[str, tuple[object, Rank]] = {}
    sources: dict[str, str] = {}
    for item in sorted(collector.found, key=lambda found: found.rank):
        try:
            raw = item.value
            if item.key.is_path and isinstance(raw, str | Path):
                raw = _resolve_absolute(raw, item.base, collector.home())
            value = item.key.validate(raw)
        except ValidationError as error:
            collector.note(item.source, f"{item.key.name}: {_explain(item, error)}")
            continue
        except ValueError as error:
            collector.note(item.source, f"{item.key.name}: {error}")
            continue
        refusal = _NOT_FOR_PROJECTS.get(item.key.name, "") if item.rank in _PROJECT_RANKS else ""
        if refusal:
            text = f"a project cannot {refusal}; say it in your own config.toml"
            collector.note(item.source, f"{item.key.name}: {text}")
            continue
        if item.key.name == _ENDPOINTS and isinstance(value, dict):
            value = _with_weaker(collector, item, chosen, value)
        chosen[item.key.name] = (value, item.rank)
        sources[item.key.name] = item.source
    return chosen, sources


def _with_weaker(
    collector: Collector,
    item: FoundSetting,
    chosen: Mapping[str, tuple[object, Rank]],
    given: dict[str, McpEndpoint],
) -> dict[str, McpEndpoint]:
    """Add endpoints to those of weaker sources, each with who says it."""
    is_of_project = item.rank in _PROJECT_RANKS
    named = {
        name: one.find_in(item.source, is_of_project=is_of_project) for name, one in given.items()
    }
    for name, one in named.items():
        if one.is_of_project and one.sandbox == "full":
            collector.note(
                item.source,
                f'{_ENDPOINTS}.{name}: sandbox = "full" cannot be said by a project; say it in '
                "your own config.toml",
            )
    weaker = chosen.get(_ENDPOINTS, ({}, Rank.DEFAULT))[0]
    found = {**(weaker if isinstance(weaker, dict) else {}), **named}
    try:
        return check_names(found)
    except ValueError as error:
        collector.note(item.source, f"{_ENDPOINTS}: {error}")
        return named


def _resolve_absolute(value: str | Path, base: Path, home: Path | None) -> Path:
    """The path made absolute; raises ValueError for what cannot be meant."""
    text = str(value)
    if not text or "\0" in text or "\n" in text:
        raise ValueError("must be a path on one line")
    if text == "~" or text.startswith("~/"):
        if home is None:
            raise ValueError("there is no home directory that ~ could mean")
        return home / text[2:]
    if text.startswith("~"):
        raise ValueError("must not name another user's home directory; write the whole path")
    return base / text


def _explain(item: FoundSetting, error: ValidationError) -> str:
    problems = [
        _find_place(item, problem["loc"])
        + problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
        for problem in error.errors(include_url=False, include_input=False)
    ]
    text = "; ".join(dict.fromkeys(problems))
    is_showable = not item.key.is_secret and isinstance(item.value, str | int | float)
    shown = repr(item.value)
    # A value with @ may be an address with a password in it.
    if is_showable and len(shown) <= 60 and "@" not in shown:
        text += f", not {shown}"
    return text


def _find_place(item: FoundSetting, steps: tuple[int | str, ...]) -> str:
    """Where in a value that has parts something is wrong; nothing for a plain one."""
    named = [str(step)[:80] for step in steps if step != "[key]"]
    return f"{'.'.join(named)}: " if named and item.key.name in (_ENDPOINTS, _SERVERS) else ""


def _fill_defaults(
    collector: Collector, chosen: dict[str, tuple[object, Rank]], sources: dict[str, str]
) -> None:
    """Give every key a value and a source."""
    for name in list_keys():
        sources.setdefault(name, "default")
    chosen.setdefault("workspace", (collector.cwd, Rank.DEFAULT))
    if (home := collector.home()) is not None:
        chosen.setdefault("home_dir", (home, Rank.DEFAULT))
    workspace = chosen["workspace"][0]
    if isinstance(workspace, Path):
        chosen.setdefault("policies.dir", (workspace / "policies", Rank.DEFAULT))
    if "storage.state_dir" not in chosen:
        standard = collector.find_standard_dir("XDG_STATE_HOME", ".local/state")
        if standard is None:
            collector.note("default", "there is no home directory; set AGENT_STATE_DIR")
            return
        chosen["storage.state_dir"] = (standard, Rank.DEFAULT)
    state_dir = chosen["storage.state_dir"][0]
    if isinstance(state_dir, Path):
        chosen.setdefault("tools.dir", (state_dir / "tools", Rank.DEFAULT))
        own = collector.find_standard_dir("XDG_CONFIG_HOME", ".config") or state_dir / "user"
        chosen.setdefault("user_dir", (own, Rank.DEFAULT))


def _check_places(collector: Collector, chosen: dict[str, tuple[object, Rank]]) -> None:
    """The workspace must be there; what we create ourselves must not be a file."""
    for name, is_needed in (("workspace", True), ("storage.state_dir", False)):
        path, rank = chosen.get(name, (None, Rank.DEFAULT))
        if not isinstance(path, Path):
            continue
        try:
            is_wrong = not path.is_dir() and (is_needed or os.path.lexists(path))
        except OSError:
            is_wrong = True
        if is_wrong:
            winner = collector.find_strongest_raw(name)
            source = winner.source if winner and rank is not Rank.DEFAULT else "default"
            collector.note(source, f"{name}: {path} is not a directory")


def _check_key_leaks(collector: Collector, chosen: dict[str, tuple[object, Rank]]) -> None:
    """Refuse to send a person's own key to an address that a project file names.

    A cloned repository may bring a holdfast.toml or .env; with a foreign base URL in it
    the first run would hand over the key from the environment.
    """
    for url_name, (key_name, vendor) in _BASE_URLS.items():
        url, url_rank = chosen.get(url_name, ("", Rank.DEFAULT))
        secret, key_rank = chosen.get(key_name, (None, Rank.DEFAULT))
        is_foreign = url_rank in _PROJECT_RANKS and not _is_safe_host(str(url), vendor)
        if is_foreign and secret is not None and key_rank >= Rank.ENVIRONMENT:
            keys = list_keys()
            winner = collector.find_strongest_raw(url_name)
            collector.note(
                winner.source if winner else url_name,
                f"{url_name} would receive the key in {keys[key_name].variable}, which the "
                f"project does not own; if you trust that address, set {keys[url_name].variable} "
                "in the environment",
            )


def _check_gaps(collector: Collector, chosen: dict[str, tuple[object, Rank]]) -> None:
    """Refuse settings that a command could have made, until a person vouches for them."""
    named = ("policies.dir", "tools.dir", "user_dir")
    folders = [chosen.get(name, (None, Rank.DEFAULT))[0] for name in named]
    read = [*collector.files, *(path for path in folders if isinstance(path, Path))]
    workspace = chosen["workspace"][0]
    if isinstance(workspace, Path):
        levels = [*Collector({}, workspace).levels(), *collector.levels()]
        read += [place / name for place in levels for name in (HOOKS_FOLDER, ".git")]
        files = [place / name for place in levels for name in _FILES]
        # What a link led to, and now leads nowhere, was not read, and should have been.
        read += [path for path in files if not path.exists()]
    for unvouched in _list_unvouched(collector):
        collector.mistakes += unvouched.mistakes(lambda: read)


def _list_unvouched(collector: Collector) -> list[UnvouchedSettings]:
    """The notes of every state directory that any source names.

    A file that a command made may name another one, in which nothing is noted.
    """
    standard = collector.find_standard_dir("XDG_STATE_HOME", ".local/state")
    found = [] if standard is None else [standard]
    for item in collector.found:
        if item.key.name == "storage.state_dir" and isinstance(item.value, str | Path):
            with contextlib.suppress(ValueError):
                found.append(_resolve_absolute(item.value, item.base, collector.home()))
    return [UnvouchedSettings(place) for place in dict.fromkeys(found)]


def _is_safe_host(url: str, vendor: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host in _LOCAL_NAMES or host == vendor:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_private


def _nest(chosen: Mapping[str, tuple[object, Rank]]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    # A section that is given, though empty, needs no validator of its own.
    for name in list_sections():
        _get_section(nested, name.split("."))
    for name, (value, _) in chosen.items():
        *sections, last = name.split(".")
        _get_section(nested, sections)[last] = value
    return nested


def _get_section(nested: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    for section in path:
        nested = nested.setdefault(section, {})
    return nested


def make_config_error(mistakes: Sequence[Mistake]) -> ConfigError:
    """Return the error that names all of these mistakes."""
    lines = list(dict.fromkeys(str(mistake) for mistake in mistakes))
    return ConfigError(detail="\n".join(f"  - {line}" for line in lines), mistakes=lines)
