"""The local tool manager: tools that are folders, installed, pinned by hash, run apart.

A bundle is a folder with a manifest (`tool.toml` or `tool.json`) and whatever its program
needs. Installing copies it below the tools directory and writes down a hash over all its
files; a bundle whose files differ from that is refused when tools are loaded and at every
call. A bundle's program runs in the sandbox, with the permissions that its manifest names and
no others, and speaks JSON over its pipes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
)

from holdfast.canonical import JsonObject
from holdfast.clock import SYSTEM, Clock
from holdfast.errors import AlreadyExists, BundleRefused, HoldfastError, NotFound, UsageError
from holdfast.ids import make_random_token
from holdfast.policy import clean_name
from holdfast.providers.json_schema import list_faults, list_problems
from holdfast.tools.bundle_files import copy_files, hash_files
from holdfast.tools.bundle_process import run_bundle
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import Tool
from holdfast.tools.labels import Label
from holdfast.tools.registry import ToolRegistry
from holdfast.tools.result import ToolResult
from holdfast.tools.schema import Signature
from holdfast.tools.services import Program
from holdfast.tools.target import NO_TARGET, make_text_target

MANIFESTS = ("tool.toml", "tool.json")
_MOST_SCHEMA_CHARS = 64_000
_GRACE_S = 5.0
_SYSTEM = ("/usr", "/opt", "/nix")
_CONTEXT = "\0context"
_log = logging.getLogger("holdfast.tools")


def _accept_no_arguments() -> JsonObject:
    return {"type": "object", "properties": {}, "additionalProperties": False}


class Permissions(BaseModel):
    """What a bundle's program may reach besides its own folder and the system's programs."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    network: bool = False
    """Every host; granted only where the operator opened the network to every host."""
    workspace: Literal["none", "read", "write"] = "read"
    read: tuple[str, ...] = Field(default=(), max_length=32)
    write: tuple[str, ...] = Field(default=(), max_length=32)
    """Further directories, by absolute paths; what may be written may be read."""

    @field_validator("read", "write")
    @classmethod
    def _are_plain(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            is_plain = path.startswith("/") and path == os.path.normpath(path)
            if not is_plain or path.strip("/") == "" or not path.isprintable():
                raise ValueError(f"{path!r} is no plain absolute path of a directory")
        return paths

    def explain(self) -> str:
        """Say it in a line, for an approver who has to consent."""
        seen = {"none": "not the workspace", "read": "reads the workspace"}
        said = [seen.get(self.workspace, "changes the workspace")]
        said += [f"reads {path}" for path in self.read]
        said += [f"changes {path}" for path in self.write]
        said.append("reaches every host on the network" if self.network else "no network")
        return ", ".join(said)


class Manifest(BaseModel):
    """What a bundle says about itself."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")
    version: str = Field(default="1.0.0", max_length=32)
    description: str = Field(min_length=1, max_length=10_000)
    command: tuple[str, ...] = Field(min_length=1, max_length=64)
    """`{bundle}` stands for the bundle's directory, `{python}` for this Python."""
    parameters: JsonObject = Field(default_factory=_accept_no_arguments)
    """The JSON Schema of the arguments, an object."""
    effect: Literal["read", "idempotent", "unsafe"] = "unsafe"
    permission: Literal["ask", "deny"] = "ask"
    """What holds where no rule speaks; only a rule of yours can allow it without asking."""
    permissions: Permissions = Field(default_factory=Permissions)
    target: str = ""
    """The argument that rules are matched against."""
    timeout_s: float = Field(default=120.0, gt=0, le=3600)
    tags: tuple[str, ...] = ()

    @field_validator("parameters")
    @classmethod
    def _is_object_schema(cls, schema: JsonObject) -> JsonObject:
        if schema.get("type") != "object" or not isinstance(schema.get("properties", {}), dict):
            raise ValueError("must be the JSON Schema of an object")
        if len(json.dumps(schema)) > _MOST_SCHEMA_CHARS:
            raise ValueError("is too long")
        if found := list_faults(schema):
            raise ValueError(f"is no JSON Schema: {'; '.join(found)}")
        return {"properties": {}, "additionalProperties": False, **schema}

    @field_validator("command")
    @classmethod
    def _check_stays_inside(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        for word in command:
            if "\0" in word:
                raise ValueError("contains a zero byte")
            if word.startswith("{bundle}") and ".." in word.split("/"):
                raise ValueError("leads out of the bundle")
        program = command[0]
        if "/" in program and not program.startswith("{bundle}/"):
            raise ValueError("names a program by a path; use {bundle}/…, {python}, or a plain name")
        return command


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """What was installed: the hash over all files of a bundle."""

    name: str
    version: str
    sha256: str
    installed_at: float


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an installed bundle is what was installed; `problem` is empty if so."""

    name: str
    version: str = ""
    sha256: str = ""
    problem: str = ""


class LocalToolManager:
    """Installs, removes, verifies and loads the bundles of one directory."""

    def __init__(self, directory: str | os.PathLike[str], *, clock: Clock = SYSTEM) -> None:
        """Manage this directory; it is created with the first installation."""
        self._directory = Path(directory).absolute()
        self._clock = clock

    def install(self, source: str | os.PathLike[str], *, replace: bool = False) -> Pin:
        """Copy a bundle, pin it, and return the pin.

        Links, special files, setuid bits, and bundles that are too large are refused. A crash
        in the middle leaves no bundle that would be loaded.

        Raises:
            BundleRefused: it is unsafe, or its manifest is wrong.
            AlreadyExists: a bundle of this name is installed.
        """
        folder = Path(source).absolute()
        if not folder.is_dir():
            raise NotFound(kind="tool", value=str(folder))
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy = self._directory / f".install-{make_random_token(8)}"
        try:
            copy_files(folder, copy, folder.name)
            manifest = read_manifest(copy, folder.name)
            for name in self.names():
                # Names that differ only by underscores or capitals are the same permission.
                is_same = clean_name(name) == clean_name(manifest.name)
                if is_same and not (replace and name == manifest.name):
                    raise AlreadyExists(kind="tool bundle", value=name)
            _check_definition(manifest, copy)
            pin = Pin(
                name=manifest.name,
                version=manifest.version,
                sha256=hash_files(copy, manifest.name),
                installed_at=self._clock.now(),
            )
            self._forget(manifest.name)
            copy.rename(self._directory / manifest.name)
            self._write_pin(pin)
            return pin
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def remove(self, name: str) -> None:
        """Remove a bundle.

        Raises:
            NotFound: none of this name is installed.
        """
        if name not in self.names():
            raise NotFound(kind="tool", value=name)
        self._forget(name)

    def names(self) -> list[str]:
        """Return the names of all installed bundles.

        Raises:
            BundleRefused: the directory of bundles cannot be read.
        """
        try:
            found = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        except OSError as error:
            detail = f"the directory cannot be read: {error.strerror}"
            raise BundleRefused(name=str(self._directory), detail=detail) from error
        return sorted(
            name.removesuffix(".pin.json") for name in found if name.endswith(".pin.json")
        )

    def verify(self, name: str = "") -> list[Verification]:
        """Compare installed bundles, or one, with their pins.

        Raises:
            NotFound: none of this name is installed.
        """
        names = self.names()
        if name and name not in names:
            raise NotFound(kind="tool", value=name)
        return [self._verify(each) for each in ([name] if name else names)]

    def load(self) -> list[Tool]:
        """Return the tools of all sound bundles; the others are left out, and logged."""
        return list(self._iterate_sound_tools())

    def _iterate_sound_tools(self) -> Iterable[Tool]:
        try:
            names = self.names()
        except BundleRefused as error:
            _log.warning("%s", error)
            names = []
        for name in names:
            try:
                pin = self._check(name)
                folder = self._directory / name
                yield make_tool(read_manifest(folder, name), folder, pin.sha256)
            except HoldfastError as error:
                _log.warning("%s", error)

    def _verify(self, name: str) -> Verification:
        try:
            pin = self._check(name)
        except BundleRefused as error:
            return Verification(name=name, problem=str(error))
        return Verification(name=name, version=pin.version, sha256=pin.sha256)

    def _check(self, name: str) -> Pin:
        try:
            pin = msgspec.json.decode(self._pin_path(name).read_bytes(), type=Pin)
        except (OSError, msgspec.MsgspecError) as error:
            raise BundleRefused(name=name, detail=f"its pin cannot be read ({error})") from error
        check_pin(self._directory / name, name, pin.sha256)
        return pin

    def _forget(self, name: str) -> None:
        """Remove the pin first: without it, what is left is never loaded."""
        self._pin_path(name).unlink(missing_ok=True)
        if (self._directory / name).exists():
            shutil.rmtree(self._directory / name)

    def _write_pin(self, pin: Pin) -> None:
        path = self._pin_path(pin.name)
        fresh = path.with_suffix(".new")
        handle = os.open(fresh, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(pin), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)

    def _pin_path(self, name: str) -> Path:
        return self._directory / f"{name}.pin.json"


def register_bundles(registry: ToolRegistry, directory: str | os.PathLike[str]) -> None:
    """Add the tools of all sound bundles; one whose name is taken is left out, and logged."""
    for tool in LocalToolManager(directory).load():
        try:
            registry.register(tool)
        except AlreadyExists as error:
            _log.warning("The tool bundle %s is left out: %s", tool.name, error)


def read_manifest(folder: Path, name: str) -> Manifest:
    """Read a bundle's manifest.

    Raises:
        BundleRefused: there is none or more than one, or it says something impossible.
    """
    found = [folder / file for file in MANIFESTS if (folder / file).is_file()]
    if len(found) != 1:
        raise BundleRefused(name=name, detail=f"it needs one manifest, {' or '.join(MANIFESTS)}")
    try:
        text = found[0].read_text(encoding="utf-8")
        if found[0].suffix == ".toml":
            import tomllib  # noqa: PLC0415 - where a manifest is written in it

            values = tomllib.loads(text)
        else:
            values = json.loads(text)
        return Manifest.model_validate(values)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()
        )
        raise BundleRefused(name=name, detail=f"its manifest is wrong: {faults}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise BundleRefused(name=name, detail=f"its manifest cannot be read: {error}") from error


def check_pin(folder: Path, name: str, sha256: str) -> None:
    """Return if the bundle's files are those that were installed; raise BundleRefused if not."""
    if hash_files(folder, name) != sha256:
        raise BundleRefused(name=name, detail="its files are not those that were installed")


def make_tool(manifest: Manifest, folder: Path, sha256: str) -> Tool:
    """Make the tool of a bundle; it checks the pin again before each call."""

    async def call(**values: Any) -> ToolResult:  # noqa: ANN401 - JSON of the model
        context: ToolContext = values.pop(_CONTEXT)
        await asyncio.to_thread(check_pin, folder, manifest.name, sha256)
        request: JsonObject = {"arguments": values, "context": _render(context)}
        program = _make_program(manifest, folder)
        return await run_bundle(context.commands, program, request, tool=manifest.name)

    async def preview(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
        return f"The program {manifest.command} {manifest.permissions.explain()}."

    def check(arguments: JsonObject) -> JsonObject:
        found = list_problems(arguments, manifest.parameters)
        if found:
            raise ValueError("; ".join(found))
        return arguments

    made = Tool(
        name=manifest.name,
        function=call,
        signature=Signature(
            purpose=manifest.description,
            parameters=manifest.parameters,
            output={},
            context_parameter=_CONTEXT,
            adapter=TypeAdapter(Annotated[dict[str, Any], AfterValidator(check)]),
        ),
        description=manifest.description,
        version=manifest.version,
        effect=manifest.effect,
        permission=manifest.permission,
        target=make_text_target(manifest.target) if manifest.target else NO_TARGET,
        tags=("bundle", *manifest.tags),
        labels=_list_labels(manifest.permissions),
        egress=manifest.permissions.network,
        timeout_s=manifest.timeout_s,
        preview=preview,
    )
    # What a bundle does is in its files, not in the function above.
    vars(made)["source_hash"] = sha256
    return made


def _list_labels(allowed: Permissions) -> tuple[Label, ...]:
    """What a program's answer may hold, by what it may reach."""
    is_private = allowed.workspace != "none" or allowed.read or allowed.write
    return (
        *(("untrusted",) if allowed.network else ()),
        *(("private",) if is_private else ()),
    )


def _check_definition(manifest: Manifest, folder: Path) -> None:
    tools = os.path.realpath(folder.parent)
    for path in map(os.path.realpath, manifest.permissions.write):
        if os.path.commonpath([path, tools]) in (path, tools):
            detail = f"it wants to change {path}, where tools are installed"
            raise BundleRefused(name=manifest.name, detail=detail)
    if manifest.target and manifest.target not in manifest.parameters["properties"]:
        detail = f"its target {manifest.target!r} is none of its parameters"
        raise BundleRefused(name=manifest.name, detail=detail)
    for word in manifest.command:
        path = word.removeprefix("{bundle}/")
        if path != word and not (folder / path).exists():
            detail = f"its command names {word}, which is not in it"
            raise BundleRefused(name=manifest.name, detail=detail)
    try:
        make_tool(manifest, folder, "")
    except UsageError as error:
        raise BundleRefused(name=manifest.name, detail=str(error)) from error


def _make_program(manifest: Manifest, folder: Path) -> Program:
    allowed = manifest.permissions
    is_python = any("{python}" in word for word in manifest.command)
    return Program(
        argv=tuple(_expand(word, folder) for word in manifest.command),
        workspace=allowed.workspace,
        has_network=allowed.network,
        readable=(str(folder), *(_list_python_folders() if is_python else ()), *allowed.read),
        writable=allowed.write,
        environment={"TOOL_BUNDLE_DIR": str(folder)},
        # The manager's own limit comes first, and says more.
        timeout_s=manifest.timeout_s + _GRACE_S,
    )


def _expand(word: str, folder: Path) -> str:
    return word.replace("{bundle}", str(folder)).replace("{python}", sys.executable)


def _list_python_folders() -> tuple[str, ...]:
    """Where this Python lives, as far as it is not a part of the system."""
    wanted = (sys.prefix, sys.base_prefix)
    return tuple(dict.fromkeys(path for path in wanted if not path.startswith(_SYSTEM)))


def _render(context: ToolContext) -> JsonObject:
    return {
        "session_id": context.session_id,
        "run_id": context.run_id,
        "call_id": context.call_id,
        "idempotency_key": context.idempotency_key,
        "workspace": context.workspace.root,
    }
