"""Which paths of a tree may be read and which may be written."""

from __future__ import annotations

import functools

import msgspec

from holdfast.errors import PermissionDenied
from holdfast.globs import compile_glob

_EVERYTHING = ("**",)


class PathRules(msgspec.Struct, frozen=True, kw_only=True):
    """Globs on real paths relative to the root; a block wins over everything.

    Blocking a directory, or making it read-only, covers everything below it.
    `read_only` may be read but not written: by default what git keeps, because a hook
    or a filter written there would run outside every sandbox.
    """

    allowed: tuple[str, ...] = _EVERYTHING
    blocked: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ("**/.git/**",)

    def __post_init__(self) -> None:
        """Refuse a glob that cannot be read, before any process relies on it."""
        for pattern in (*self.allowed, *self.blocked, *self.read_only):
            compile_glob(pattern)

    def check(self, path: str, *, is_write: bool, is_directory: bool = False) -> None:
        """Do nothing if the path may be used.

        A directory may be looked into although only files below it are allowed.

        Raises:
            PermissionDenied: a glob blocks it, or none allows it.
        """
        because = self.find_objection(path, is_write=is_write, is_directory=is_directory)
        if because:
            permission = "write" if is_write else "read"
            raise PermissionDenied(permission=permission, target=path, because=because)

    @property
    def allows_all(self) -> bool:
        """Whether everything is allowed that is not blocked."""
        return self.allowed == _EVERYTHING

    @property
    def keeps_from_reading(self) -> bool:
        """Whether there is anything that may not be read."""
        return bool(self.blocked) or not self.allows_all

    def can_read(self, path: str, *, is_directory: bool = False) -> bool:
        """Say whether the path may be read."""
        return not self.find_objection(path, is_write=False, is_directory=is_directory)

    def find_objection(self, path: str, *, is_write: bool, is_directory: bool = False) -> str:
        """Say which rule is against it; nothing if none is."""
        above = _with_parents(path)
        for pattern in self.blocked:
            if any(map(compile_glob(pattern).fullmatch, above)):
                return f"the path rule {pattern!r} blocks it"
        for pattern in self.read_only if is_write else ():
            if any(map(compile_glob(pattern).fullmatch, above)):
                return f"the path rule {pattern!r} makes it read-only"
        if self.allows_all or (is_directory and not is_write):
            return ""
        if any(compile_glob(pattern).fullmatch(path) for pattern in self.allowed):
            return ""
        return "no path rule allows it"


class KeptPaths(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What stays kept however it is reached: through a granted directory around or inside it.

    `hidden` and `read_only` are real absolute paths with all below; `rules` are those of the
    workspace at `root`. Of its globs, those that begin with `**/` hold for absolute paths too.
    With `within`, nothing but what lies in one of those directories can be granted.
    """

    root: str
    rules: PathRules
    hidden: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    within: tuple[str, ...] | None = None

    def check(self, path: str, *, is_write: bool, is_directory: bool = False) -> None:
        """Do nothing if an absolute path may be used; otherwise as `PathRules.check`."""
        if any(_is_at_or_below(path, one) for one in self.hidden):
            because = "it holds keys or records, which agents never see"
        elif is_write and any(_is_at_or_below(path, one) for one in self.read_only):
            because = "it says what agents may do, and they never change it"
        elif not any(_is_at_or_below(path, one) for one in self._roots):
            because = "it lies outside of what this tenant may be given"
        else:
            because = self._everywhere.find_objection(path.lstrip("/"), is_write=is_write)
        if because:
            permission = "write" if is_write else "read"
            raise PermissionDenied(permission=permission, target=path, because=because)
        if path.startswith(f"{self.root}/"):
            inside = path[len(self.root) + 1 :]
            self.rules.check(inside, is_write=is_write, is_directory=is_directory)

    @property
    def _roots(self) -> tuple[str, ...]:
        return ("",) if self.within is None else self.within

    @functools.cached_property
    def _everywhere(self) -> PathRules:
        return PathRules(
            blocked=tuple(one for one in self.rules.blocked if one.startswith("**/")),
            read_only=tuple(one for one in self.rules.read_only if one.startswith("**/")),
        )


def _is_at_or_below(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}/")


def _with_parents(path: str) -> list[str]:
    """The path and each directory above it, below the root."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
