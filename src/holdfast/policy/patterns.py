"""How the patterns of rules meet names and targets.

Patterns become regular expressions without capturing groups and without backtracking
that an input could blow up: targets come from models, and a model may try.
"""

from __future__ import annotations

import functools
import posixpath
import re
import shlex
from collections.abc import Callable
from typing import TypeAlias

from holdfast.errors import UsageError
from holdfast.globs import FLAGS, glob_source
from holdfast.policy.hosts import BadHost, normalize_host, render_host_source, split_port

LONGEST_PATTERN = 1_000
EVERYTHING = frozenset({"*", "**"})
USUAL_PORT = "443"
"""The port of a host that is named without one, as a target."""
SEPARATORS = {"path": "/", "host": "."}
"""What parts the words of a target; a space unless said otherwise."""

Matcher: TypeAlias = Callable[[str], bool]

# What a request is besides its own permission, so that one rule can cover all tools that
# touch the same kind of thing.
KIND_PERMISSION = {"path": "path", "host": "network", "command": "command"}

_PLAIN = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz", "_-")
_SPECIAL = frozenset("*?[]")


# Quoted words as `shlex.join` writes them; what else a shell gives a meaning to.
@functools.cache
def _compile_quoted() -> re.Pattern[str]:
    return re.compile(r"'[^']*'|\"'\"")


@functools.cache
def _compile_mcp_name() -> re.Pattern[str]:
    return re.compile(r"mcp__([^_]+(?:_[^_]+)*)__", re.IGNORECASE)


@functools.cache
def _compile_shell() -> re.Pattern[str]:
    return re.compile(r"[;&|<>$`\\\n\r(){}*?\[\]~!#\"']")


def clean_name(name: str) -> str:
    """Names with and without underscores, hyphens and capitals are the same name."""
    return name.translate(_PLAIN)


def has_fixed_part(pattern: str) -> bool:
    """Say whether a pattern of names names anything, rather than covering everything."""
    return bool(clean_name(pattern).strip("*?"))


@functools.lru_cache(maxsize=8_192)
def name_matches(pattern: str, permission: str, kind: str = "none") -> bool:
    """Say whether a rule for `pattern` speaks of a permission on a kind of target."""
    if pattern in EVERYTHING:
        return True
    server = _compile_mcp_name().match(permission)
    if server is not None and not _may_mean_server(pattern, server[1]):
        return False
    expression = re.compile(render_wildcard_source(clean_name(pattern)), re.DOTALL)
    names = {permission, KIND_PERMISSION.get(kind, permission)}
    return any(expression.fullmatch(clean_name(name)) for name in names)


def _may_mean_server(pattern: str, server: str) -> bool:
    """Say whether a rule can be about a tool of an MCP server: one for `git` is not for `github`.

    A pattern that names a server whole (`mcp__git__*`) means that one. One in another spelling
    (`mcp_git_*`) does not end in the middle of a word of the server's name.
    """
    named = _compile_mcp_name().match(pattern)
    if named is not None and not _SPECIAL & set(named[1]):
        return clean_name(named[1]) == clean_name(server)
    head = re.match(r"[^*?]*", pattern)
    text = head[0] if head else ""
    start = clean_name(text)
    whole = clean_name(f"mcp{server}")
    if not text.endswith("_") or len(start) <= len("mcp") or not whole.startswith(start):
        return True
    ends = {len("mcp") + len(clean_name(server[:at])) for at in _find_word_ends(server)}
    return len(start) in ends


def _find_word_ends(server: str) -> list[int]:
    return [at for at in range(1, len(server) + 1) if not server[at:] or server[at] in "-_"]


@functools.lru_cache(maxsize=8_192)
def render_target_source(pattern: str, kind: str) -> str:
    """Return the regular expression of a pattern for targets of a kind.

    Raises:
        UsageError: the pattern cannot be read.
    """
    if pattern in EVERYTHING:
        return ".*"
    if len(pattern) > LONGEST_PATTERN:
        raise UsageError(detail=f"The pattern {pattern[:80]!r} is too long.")
    if kind == "path":
        return _render_path_source(pattern)
    if kind == "host":
        try:
            return _render_ported_source(pattern)
        except BadHost as error:
            raise UsageError(detail=f"The host pattern {pattern!r}: {error}.") from error
    if kind == "command":
        pattern = _fold_append(pattern)
    if kind == "command" and pattern.endswith(" *"):
        # `git status *` covers `git status` as well, whatever its arguments.
        return f"{render_wildcard_source(pattern[:-2])}(?: .*)?"
    return render_wildcard_source(pattern)


def _render_ported_source(pattern: str) -> str:
    """A host alone, and `host:*`, mean every port; `host:8080` means that one."""
    host, port = split_port(pattern)
    source = render_host_source(host)
    if port in ("", "*"):
        return rf"{source}(?:\.:[0-9]+)?"
    if port == USUAL_PORT:
        return rf"(?!.*\.:){source}"
    return rf"{source}\.:{port}"


@functools.lru_cache(maxsize=8_192)
def compile_matcher(pattern: str, kind: str) -> Matcher:
    """Return what says whether a pattern meets a target (in its one spelling).

    A pattern that cannot be read meets everything, so that its rule can refuse.
    """
    if pattern in EVERYTHING or not is_readable(pattern, kind):
        return _meets_everything
    fullmatch = re.compile(render_target_source(pattern, kind), _choose_flags(kind)).fullmatch
    return lambda target: fullmatch(target) is not None


@functools.lru_cache(maxsize=8_192)
def is_readable(pattern: str, kind: str) -> bool:
    """Say whether a pattern means anything for targets of a kind."""
    try:
        render_target_source(pattern, kind)
    except UsageError:
        return False
    return True


@functools.lru_cache(maxsize=8_192)
def find_fixed_word(pattern: str, kind: str) -> str:
    """Return a word that every target meeting the pattern contains; empty if unknown.

    Words are what stands between the separators of a kind.
    """
    is_certain = pattern.isascii() and not ("{" in pattern and kind == "path")
    if not is_certain or not is_readable(pattern, kind) or _choose_flags(kind) & re.IGNORECASE:
        return ""
    text = split_port(pattern.lower())[0] if kind == "host" else pattern.removeprefix("./")
    text = _fold_append(text) if kind == "command" else text
    words = text.strip(SEPARATORS.get(kind, "")).split(SEPARATORS.get(kind, " "))
    return max((word for word in words if not _SPECIAL & set(word)), key=len, default="")


@functools.lru_cache(maxsize=8_192)
def list_fixed_words(pattern: str) -> tuple[str, ...]:
    """Return the words with which every command begins that a pattern meets."""
    head = re.match(r"[^*?]*", pattern)
    text = head[0] if head else ""
    if text != pattern:
        # The word in which the wildcard stands is not fixed.
        text = text[: text.rfind(" ") + 1]
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return ()


def _meets_everything(_target: str) -> bool:
    return True


def _choose_flags(kind: str) -> int:
    return FLAGS if kind == "path" else re.DOTALL


def _render_path_source(pattern: str) -> str:
    """Relative patterns are for the workspace, absolute ones for what lies outside.

    One that begins with `**/` finds its mark in both.
    """
    source = glob_source(pattern)
    if pattern.startswith("/"):
        return f"/{source}"
    return f"/?{source}" if pattern.startswith("**/") else source


def clean_target(target: str, kind: str) -> str:
    """Return the one spelling of a target that patterns are matched against."""
    if kind == "path":
        if ".." in target or "./" in target or "//" in target or target.endswith("/"):
            # `//` is kept by normpath; no author means it.
            return posixpath.normpath(re.sub("/+", "/", target)) if target else "."
        return target
    if kind == "host":
        try:
            host, port = split_port(target)
            name = normalize_host(host)
        except BadHost:
            return f"?{target}"
        # The port is a word of its own that no name can have, so that words can be looked up.
        return name if port in ("", USUAL_PORT) else f"{name}.:{port}"
    return _fold_append(target) if kind == "command" else target


def _fold_append(text: str) -> str:
    """Return a command with `>` for `>>`: a rule about writing to a file means both."""
    return text.replace(">>", ">") if ">>" in text else text


def is_simple_command(command: str) -> bool:
    """Say whether a command is nothing but words, quoted as `shlex.join` quotes them.

    Anything that a shell would act upon makes it more than that: separators,
    redirections, substitutions, globs.
    """
    return _compile_shell().search(_compile_quoted().sub("", command)) is None


def render_wildcard_source(pattern: str) -> str:
    """`*` stands for any text, `?` for one character; everything else for itself.

    A star between fixed texts takes the first place where the next text fits and never
    tries another: no other choice could succeed where that one fails.
    """
    first, *rest = [_find_fixed(part) for part in re.split(r"\*+", pattern)]
    if not rest:
        return first
    middle = "".join(f"(?>.*?{part})" for part in rest[:-1] if part)
    return f"{first}{middle}.*{rest[-1]}"


def _find_fixed(part: str) -> str:
    return ".".join(map(re.escape, part.split("?")))
