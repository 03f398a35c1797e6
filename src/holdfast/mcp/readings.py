"""Resources and prompts of a server: what it lists, and the tools by which agents reach them.

The tools are described by us, never by the server; where a rule names a resource, it is matched
against `server/uri`, a prompt against `server/prompts/name`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from holdfast.canonical import JsonObject, encode_canonical_json, hash_sha256
from holdfast.mcp.definitions import PREFIX, RemoteTool
from holdfast.mcp.text import make_readable
from holdfast.policy import clean_name
from holdfast.settings import McpEndpoint

LIST, READ, PROMPT = "list_resources", "read_resource", "get_prompt"
_MOST_SHOWN: Final = 200
_MOST_URI: Final = 2_000
_TEXT: Final[JsonObject] = {"type": "string", "minLength": 1, "maxLength": _MOST_URI}


class OfferedResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource of a server, or with `is_template` a pattern for the addresses of some."""

    endpoint: str
    uri: str
    name: str = ""
    description: str = ""
    media_type: str = ""
    is_template: bool = False


class OfferedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt of a server, with the names of its arguments; those in `required` it needs."""

    endpoint: str
    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


def read_resources(endpoint: str, listed: Sequence[JsonObject]) -> list[OfferedResource]:
    """Return the resources and templates of a listing; what cannot be shown is left out."""
    found = []
    for one in listed:
        uri = one.get("uri") or one.get("uriTemplate")
        if not isinstance(uri, str) or not _is_showable(uri):
            continue
        found.append(
            OfferedResource(
                endpoint=endpoint,
                uri=uri,
                name=_read(one, "name", 200),
                description=_read(one, "description", 500),
                media_type=_read(one, "mimeType", 100),
                is_template="uri" not in one,
            )
        )
    return found


def read_prompts(endpoint: str, listed: Sequence[JsonObject]) -> list[OfferedPrompt]:
    """Return the prompts of a listing; what cannot be shown is left out."""
    found = []
    for one in listed:
        name, given = one.get("name"), one.get("arguments")
        if not isinstance(name, str) or not _is_showable(name):
            continue
        arguments = [
            arg
            for arg in (given if isinstance(given, list) else [])
            if isinstance(arg, dict) and isinstance(arg.get("name"), str)
        ]
        found.append(
            OfferedPrompt(
                endpoint=endpoint,
                name=name,
                description=_read(one, "description", 500),
                arguments=tuple(make_readable(arg["name"], 100) for arg in arguments),
                required=tuple(
                    make_readable(arg["name"], 100) for arg in arguments if arg.get("required")
                ),
            )
        )
    return found


def make_readers(
    name: str,
    endpoint: McpEndpoint,
    taken: Iterable[RemoteTool],
    *,
    has_resources: bool,
    has_prompts: bool,
) -> list[RemoteTool]:
    """Return the tools by which resources and prompts are reached.

    A tool of the server that is called so already keeps its name; ours is then left out.
    """
    names = {clean_name(one.remote) for one in taken}
    wanted = (LIST, READ) * has_resources + (PROMPT,) * has_prompts
    effect = "read" if endpoint.trust_annotations else "unsafe"
    made = []
    for remote in wanted:
        ours = f"{PREFIX}{name}__{remote}"
        if clean_name(remote) in names:
            continue
        text, schema = _describe(name, remote)
        made.append(
            RemoteTool(
                endpoint=name,
                remote=remote,
                name=ours,
                description=text,
                schema=schema,
                effect=effect,  # type: ignore[arg-type] # one of the two
                digest=hash_sha256(encode_canonical_json({"text": text, "schema": schema})),
            )
        )
    return made


def find_target(remote: RemoteTool, arguments: Mapping[str, Any]) -> str:
    """Return what patterns of rules are matched against for a call of one of these tools."""
    if remote.remote == READ:
        return f"{remote.endpoint}/{arguments.get('uri', '')}"
    if remote.remote == PROMPT:
        return f"{remote.endpoint}/prompts/{arguments.get('name', '')}"
    return f"{remote.endpoint}/resources"


def show_resources(found: Sequence[OfferedResource]) -> str:
    """Return a list for a model: one line each, at most two hundred."""
    lines = []
    for one in found[:_MOST_SHOWN]:
        kind = "template " if one.is_template else ""
        words = [part for part in (one.name, one.media_type, one.description) if part]
        lines.append(f"{kind}{one.uri}" + (f" ({'; '.join(words)})" if words else ""))
    if len(found) > _MOST_SHOWN:
        lines.append(f"[{len(found) - _MOST_SHOWN} more left out]")
    return "\n".join(" ".join(line.split()) for line in lines) or "[no resources]"


def to_blocks(answer: JsonObject) -> JsonObject:
    """Return the answer to a reading, or a prompt, in the form of the answer to a call."""
    blocks: list[JsonObject] = []
    contents = answer.get("contents")
    for one in contents if isinstance(contents, list) else []:
        blocks.append({"type": "resource", "resource": one})
    messages = answer.get("messages")
    for one in messages if isinstance(messages, list) else []:
        role = "assistant" if isinstance(one, dict) and one.get("role") == "assistant" else "user"
        content = one.get("content") if isinstance(one, dict) else None
        blocks.append({"type": "text", "text": f"[{role}]"})
        blocks.append(content if isinstance(content, dict) else {})
    return {"content": blocks}


def _describe(name: str, remote: str) -> tuple[str, JsonObject]:
    if remote == LIST:
        text = f"[MCP server {name}] List the resources that can be read from it."
        return text, {"type": "object", "properties": {}, "additionalProperties": False}
    if remote == READ:
        text = f"[MCP server {name}] Read one of its resources by its address (uri)."
        return text, _make_schema({"uri": _TEXT}, "uri")
    text = f"[MCP server {name}] Get one of its prompts, filled in with arguments."
    held = {"type": "object", "additionalProperties": {"type": "string"}}
    return text, _make_schema({"name": _TEXT, "arguments": held}, "name")


def _make_schema(fields: JsonObject, required: str) -> JsonObject:
    return {
        "type": "object",
        "properties": fields,
        "required": [required],
        "additionalProperties": False,
    }


def _read(one: JsonObject, key: str, limit: int) -> str:
    value = one.get(key)
    return make_readable(value, limit) if isinstance(value, str) else ""


def _is_showable(text: str) -> bool:
    return 0 < len(text) <= _MOST_URI and text.isprintable() and text == text.strip()


__all__ = ["LIST", "PROMPT", "READ", "OfferedPrompt", "OfferedResource", "find_target"]
__all__ += ["make_readers", "read_prompts", "read_resources", "show_resources", "to_blocks"]
