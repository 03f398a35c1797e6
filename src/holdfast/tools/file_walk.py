"""Walk the files of a workspace as git would see them.

`.gitignore` files inside the workspace are obeyed, nested ones included; `.git` is left
out; links are named but never followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.globs import compile_glob
from holdfast.sandbox import Entry, Workspace

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

MAX_VISITED = 200_000
_MAX_IGNORE_BYTES = 1024 * 1024


class IgnoreRules:
    """The `.gitignore` files that hold in one directory: its own and those above it."""

    def __init__(self, specs: tuple[tuple[str, GitIgnoreSpec], ...] = ()) -> None:
        """Start with the files of the directories above, outermost first."""
        self._specs = specs

    def enter_directory(self, workspace: Workspace, directory: str) -> IgnoreRules:
        """Return the rules that hold inside a directory."""
        path = f"{directory}/.gitignore" if directory != "." else ".gitignore"
        try:
            data = workspace.read(path, max_bytes=_MAX_IGNORE_BYTES)
            from pathspec import GitIgnoreSpec  # noqa: PLC0415 - 20 ms

            spec = GitIgnoreSpec.from_lines(data.decode(errors="replace").splitlines())
        except (HoldfastError, ValueError):
            return self  # none there, or none that can be read
        return IgnoreRules((*self._specs, (_render_prefix(directory), spec)))

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        """Say whether a path is ignored; the innermost file that speaks of it decides."""
        for prefix, spec in reversed(self._specs):
            inner = path[len(prefix) :] + ("/" if is_directory else "")
            verdict = spec.check_file(inner).include
            if verdict is not None:
                return verdict
        return False


class FileWalk:
    """One walk below a directory; iterate over it once."""

    def __init__(
        self,
        workspace: Workspace,
        start: str = ".",
        *,
        ignore: Sequence[str] = (),
        is_stopped: Callable[[], bool] = lambda: False,
        details: bool = False,
    ) -> None:
        """Choose where to walk and what else to leave out (globs, relative to the start)."""
        self._workspace = workspace
        self._start = workspace.canonical(start)
        self._ignore = [match_any_depth(pattern) for pattern in ignore]
        self._is_stopped = is_stopped
        self._details = details
        self.is_complete = True
        self.has_ignored_start = False

    @property
    def start(self) -> str:
        """The real path of the directory where the walk begins."""
        return self._start

    def entries(self, directory: str, rules: IgnoreRules) -> list[Entry]:
        """What a directory holds, without what is ignored."""
        try:
            found = self._workspace.scandir(directory, details=self._details)
        except HoldfastError:
            if directory == self._start:
                raise
            return []  # gone, or not ours to read
        return [entry for entry in found if not self._is_ignored(entry, rules)]

    def files(self) -> Iterator[Entry]:
        """Every file and link below the start."""
        waiting = [(self._start, self.read_rules_at_start())]
        visited = 0
        while waiting:
            directory, rules = waiting.pop()
            for entry in self.entries(directory, rules):
                visited += 1
                if visited > MAX_VISITED or self._is_stopped():
                    self.is_complete = False
                    return
                if entry.kind == "directory":
                    waiting.append((entry.path, rules.enter_directory(self._workspace, entry.path)))
                elif entry.kind in ("file", "link"):
                    yield entry

    def read_rules_at_start(self) -> IgnoreRules:
        """The rules that hold in the start directory.

        A caller who names an ignored directory wants to look into it, so the rules
        that ignore it are dropped then.
        """
        if self._start.startswith("/"):
            return IgnoreRules().enter_directory(self._workspace, self._start)
        rules = IgnoreRules().enter_directory(self._workspace, ".")
        parts = [] if self._start == "." else self._start.split("/")
        for count in range(1, len(parts) + 1):
            directory = "/".join(parts[:count])
            if rules.ignores(directory, is_directory=True):
                rules = IgnoreRules()
                self.has_ignored_start = True
            rules = rules.enter_directory(self._workspace, directory)
        return rules

    def relative(self, path: str) -> str:
        """A path as seen from the start."""
        return path[len(_render_prefix(self._start)) :]

    def _is_ignored(self, entry: Entry, rules: IgnoreRules) -> bool:
        if entry.name == ".git":
            return True
        if self._ignore:
            relative = self.relative(entry.path)
            if any(compile_glob(pattern).fullmatch(relative) for pattern in self._ignore):
                return True
        return rules.ignores(entry.path, is_directory=entry.kind == "directory")


def match_any_depth(pattern: str) -> str:
    """A glob without a slash matches at any depth, as in `.gitignore`."""
    trimmed = pattern.removeprefix("./").rstrip("/")
    return trimmed if "/" in trimmed else f"**/{trimmed}"


def _render_prefix(directory: str) -> str:
    return "" if directory == "." else directory.rstrip("/") + "/"
