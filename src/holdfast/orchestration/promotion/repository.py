"""Git, as far as a promotion needs it, and so that nothing an agent wrote is executed.

An agent writes in a worktree and nowhere else, so this trusts the repository's own directory
(`.git`) and nothing in the worktree: the git directory is named by us and not looked up from the
worktree's `.git`, hooks, monitors and signing programs are switched off, commits are made by
plumbing, and repositories inside of the worktree are refused.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from holdfast.errors import UsageError
from holdfast.settings import process_environment
from holdfast.tools import make_git_environment

_TIMEOUT_S: Final = 300.0
_LINK_MODE: Final = "160000"
_NAME: Final = "Holdfast"
_ADDRESS: Final = "holdfast@localhost"


class GitRepository:
    """The repository around a directory; every call blocks."""

    def __init__(self, directory: Path) -> None:
        """Find the repository.

        Raises:
            UsageError: there is no git, no repository, no commit, or no branch is checked out.
        """
        if shutil.which("git") is None:
            raise UsageError(detail="--promote works with git, and there is no git on the PATH.")
        directory = directory.resolve()
        self.top = directory
        top = self._ask("rev-parse", "--show-toplevel", may_fail=True)
        if not top:
            raise UsageError(detail=f"--promote needs a git repository; {directory} is in none.")
        self.top = Path(top)
        self.inside = directory.relative_to(self.top)
        """Where the workspace lies in the repository."""
        self._common = Path(self._ask("rev-parse", "--path-format=absolute", "--git-common-dir"))
        self.branch = self._ask("symbolic-ref", "--quiet", "--short", "HEAD", may_fail=True)
        if not self.branch:
            raise UsageError(
                detail=f"No branch is checked out in {self.top}, so there is nothing to merge into."
            )
        if not self.find_commit("HEAD"):
            raise UsageError(detail=f"The branch {self.branch} of {self.top} has no commit yet.")

    def find_commit(self, name: str) -> str:
        """Return the commit that a name stands for; nothing if it stands for none."""
        return self._ask("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}", may_fail=True)

    def find_tree(self, name: str) -> str:
        """Return the tree of a commit."""
        return self._ask("rev-parse", "--verify", f"{name}^{{tree}}")

    def list_changes(self, place: Path | None = None) -> list[str]:
        """Return what was changed and is not committed, here or in a worktree; new files do not
        count.
        """
        at = self._name_worktree(place) if place is not None else ()
        words = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all", "-z")
        told = self._ask(*at, *words, directory=place)
        return [line[3:] for line in told.split("\0") if line]

    def list_changed_files(self, before: str, after: str) -> tuple[str, ...]:
        """Return the files in which two commits differ; one that was moved counts twice."""
        told = self._ask("diff-tree", "-r", "-z", "--name-only", "--no-renames", before, after)
        return tuple(name for name in told.split("\0") if name)

    def has_links(self, commit: str) -> bool:
        """Say whether a commit names other repositories (submodules)."""
        told = self._ask("ls-tree", "-r", "-z", commit)
        return any(line.startswith(_LINK_MODE) for line in told.split("\0"))

    def open_worktree(self, place: Path, start: str, *, branch: str = "") -> None:
        """Check out a commit at a place, on a new branch if one is named.

        Raises:
            UsageError: it cannot be made there.
        """
        self._ask("worktree", "prune")
        chosen = ("-b", branch) if branch else ("--detach",)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                detail=f"The worktree cannot be made: {error}. Name another directory with "
                "promotion.dir."
            ) from error
        self._ask("worktree", "add", "--quiet", *chosen, str(place), start)

    def drop_worktree(self, place: Path, *, branch: str = "") -> None:
        """Remove a worktree with all that is in it, and its branch if it is named."""
        self._ask("worktree", "remove", "--force", str(place), may_fail=True)
        shutil.rmtree(place, ignore_errors=True)
        self._ask("worktree", "prune", may_fail=True)
        if branch:
            self._ask("branch", "--quiet", "-D", branch, may_fail=True)

    def commit_worktree(self, place: Path, branch: str, message: str) -> str:
        """Commit everything in a worktree to its branch, and return the branch's commit.

        Raises:
            UsageError: a repository lies within, of which nothing could be merged.
        """
        for folder, names, files in os.walk(place):
            if Path(folder) != place and ".git" in (*names, *files):
                raise UsageError(detail=f"The run made a repository of its own at {folder}.")
        at = self._name_worktree(place)
        before = self.find_commit(branch)
        self._ask(*at, "add", "--all", "--", ".", directory=place)
        tree = self._ask(*at, "write-tree", directory=place)
        if tree == self.find_tree(before):
            return before
        commit = self.commit_tree(tree, (before,), message)
        self._ask("update-ref", f"refs/heads/{branch}", commit, before)
        return commit

    def commit_tree(self, tree: str, parents: Sequence[str], message: str) -> str:
        """Return a new commit; no branch has it yet, and no hook hears of it."""
        named = [word for parent in parents for word in ("-p", parent)]
        return self._ask("commit-tree", tree, *named, "-m", message, more=self._find_author())

    def merge_trees(self, ours: str, theirs: str) -> tuple[str, str]:
        """Return the tree of a merge, and what is in conflict if it has none."""
        if self._ask("merge-base", ours, theirs, may_fail=True) == ours:
            return self.find_tree(theirs), ""
        done = self._run(("merge-tree", "--write-tree", "--name-only", ours, theirs))
        tree, _, rest = done.stdout.partition("\n")
        return (tree, "") if done.returncode == 0 else ("", rest.strip() or done.stderr.strip())

    def advance_branch(self, commit: str) -> str:
        """Move the branch and the files here on to a commit; returns why not, if not."""
        if self._ask("symbolic-ref", "--quiet", "--short", "HEAD", may_fail=True) != self.branch:
            return f"{self.branch} is not checked out any more."
        done = self._run(("merge", "--ff-only", "--quiet", "--no-autostash", commit))
        return "" if done.returncode == 0 else (done.stderr.strip() or "git refused to merge.")

    def _name_worktree(self, place: Path) -> tuple[str, str]:
        """The words that name a worktree to git, found from our side: nothing in it is believed."""
        for known in (self._common / "worktrees").iterdir():
            link = known / "gitdir"
            if link.is_file() and Path(link.read_text().strip()).parent == place:
                return f"--git-dir={known}", f"--work-tree={place}"
        raise UsageError(detail=f"git knows no worktree at {place}.")

    def _find_author(self) -> Mapping[str, str]:
        """Who commits: as git is configured, else we say that it was us."""
        name = self._ask("config", "user.name", may_fail=True) or _NAME
        address = self._ask("config", "user.email", may_fail=True) or _ADDRESS
        return {
            "GIT_AUTHOR_NAME": name,
            "GIT_AUTHOR_EMAIL": address,
            "GIT_COMMITTER_NAME": name,
            "GIT_COMMITTER_EMAIL": address,
        }

    def _ask(
        self,
        *words: str,
        may_fail: bool = False,
        directory: Path | None = None,
        more: Mapping[str, str] | None = None,
    ) -> str:
        done = self._run(words, directory=directory, more=more)
        if done.returncode and not may_fail:
            told = done.stderr.strip() or f"exit code {done.returncode}"
            raise UsageError(detail=f"git {' '.join(words[:3])} failed: {told}")
        return done.stdout.rstrip("\n") if done.returncode == 0 else ""

    def _run(
        self,
        words: Sequence[str],
        *,
        directory: Path | None = None,
        more: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        around = {k: v for k, v in process_environment().items() if not k.startswith("GIT_")}
        hardened = make_git_environment(is_looking=False)
        return subprocess.run(
            ["git", "--no-pager", *words],
            cwd=directory or self.top,
            env={**around, **hardened, **(more or {}), "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=_TIMEOUT_S,
            check=False,
        )
