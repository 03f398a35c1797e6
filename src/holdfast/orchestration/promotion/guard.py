"""Keeps an agent's work apart, and merges exactly what passed the checks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias

from msgspec.structs import replace

from holdfast.errors import UsageError
from holdfast.globs import matches
from holdfast.orchestration.promotion.report import CheckEvidence, PromotionReport
from holdfast.orchestration.promotion.repository import GitRepository
from holdfast.settings import PromotionSettings

CheckRunner: TypeAlias = Callable[[str, Path], Awaitable[CheckEvidence]]
"""Runs a command in a directory, through the gate and in the sandbox."""
_TRIES: Final = 3
_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class PromotionGuard:
    """The worktree of one run, and the way of its changes into the branch that is checked out.

    What is checked is a fresh checkout of the merge itself: not the worktree, in which files that
    git ignores could have helped, and not the run's branch, which may lack what came meanwhile.
    The branch moves only to a commit with the tree that passed, and only if it is where it was.
    """

    def __init__(self, workspace: Path, run_id: str, settings: PromotionSettings) -> None:
        """Make the worktree of a run ready, or find the one that is there.

        Raises:
            UsageError: no check is configured, or the repository is not fit; nothing was made.
        """
        if not settings.checks:
            raise UsageError(
                detail="--promote needs at least one check: give --check COMMAND, or set "
                'promotion.checks = ["…"] in holdfast.toml.'
            )
        if not _RUN_ID.fullmatch(run_id) or run_id.endswith((".", ".lock")) or ".." in run_id:
            raise UsageError(detail=f"{run_id!r} cannot name a branch; choose another --run-id.")
        self._settings = settings
        self._run_id = run_id
        self._repository = repository = GitRepository(workspace)
        self.branch = f"holdfast/{run_id}"
        top = repository.top
        folder = settings.dir or top.with_name(f"{top.name}.worktrees")
        self._place = folder / run_id
        self._checkout = folder / f"{run_id}.check"
        if repository.find_commit(f"refs/heads/{self.branch}") and self._place.is_dir():
            return
        if changed := repository.list_changes():
            raise UsageError(
                detail=f"{top} has changes that are not committed ({', '.join(changed[:5])}); the "
                "agent would work without them. Commit or stash them first."
            )
        if repository.has_links("HEAD"):
            raise UsageError(detail="--promote does not work in repositories with submodules.")
        repository.open_worktree(self._place, "HEAD", branch=self.branch)

    @property
    def workspace(self) -> Path:
        """Where the agent works."""
        return self._place / self._repository.inside

    async def promote(self, run_check: CheckRunner, *, goal: str = "") -> PromotionReport:
        """Check what the run did, and merge it if every check passes.

        Where it was merged, or nothing was changed, worktree and branch are gone afterwards;
        else both stay, so that a person can look, and this can be called again.

        Raises:
            UsageError: git cannot work with what the run left; nothing was merged.
        """
        found = await asyncio.to_thread(self._prepare, goal)
        for _ in range(_TRIES):
            if found.outcome != "checks_failed":
                break
            found = await self._check(found, run_check)
            if not all(check.is_passed for check in found.checks):
                break
            found = await asyncio.to_thread(self._merge, found, goal)
            if found.outcome == "promoted":
                break
            # The branch has moved meanwhile: what passed is not what would be merged now.
            later = await asyncio.to_thread(self._prepare, goal)
            if later.base == found.base:
                break
            found = later
        if not found.is_refused:
            await asyncio.to_thread(self._repository.drop_worktree, self._place, branch=self.branch)
        return found

    def _prepare(self, goal: str) -> PromotionReport:
        """Commit the run's work, and find what a merge would give.

        The outcome is `checks_failed` until all have passed: what is forgotten is refused.
        """
        repository = self._repository
        title = " ".join(goal.split())[:60] or "work"
        message = f"{title}\n\nHoldfast-Run: {self._run_id}\n"
        head = repository.commit_worktree(self._place, self.branch, message)
        base = repository.find_commit(f"refs/heads/{repository.branch}")
        report = PromotionReport(
            run_id=self._run_id,
            outcome="checks_failed",
            target=repository.branch,
            branch=self.branch,
            worktree=str(self._place),
            base=base,
        )
        tree, problem = repository.merge_trees(base, head)
        if problem:
            return replace(report, outcome="conflict", reason=problem)
        if repository.has_links(head):
            return replace(report, outcome="protected", reason="The run added a submodule.")
        if tree == repository.find_tree(base):
            return replace(report, outcome="nothing_changed")
        merge = repository.commit_tree(tree, (base, head), f"Candidate of {self._run_id}")
        files = repository.list_changed_files(base, merge)
        report = replace(report, tree=tree, files=files)
        guarded = [
            name
            for name in files
            if any(matches(name, pattern) for pattern in self._settings.protected)
        ]
        if guarded:
            reason = (
                f"Only a person merges changes of {', '.join(guarded)}: git merge {self.branch}"
            )
            return replace(report, outcome="protected", reason=reason)
        return report

    async def _check(self, report: PromotionReport, run_check: CheckRunner) -> PromotionReport:
        done: list[CheckEvidence] = []
        try:
            await asyncio.to_thread(self._open_checkout, report)
            for command in self._settings.checks:
                found = await run_check(command, self._checkout / self._repository.inside)
                found = await asyncio.to_thread(self._judge, found)
                done.append(found)
                if not found.is_passed:
                    break
        finally:
            await asyncio.to_thread(self._repository.drop_worktree, self._checkout)
        failed = [one.command for one in done if not one.is_passed]
        reason = f"This did not pass: {failed[0]}" if failed else ""
        return replace(report, checks=tuple(done), reason=reason)

    def _judge(self, found: CheckEvidence) -> CheckEvidence:
        """Refuse a check that changed what is checked: it would pass on something else."""
        changed = self._repository.list_changes(self._checkout)
        if not changed:
            return found
        told = f"{found.output}\n[It changed files: {', '.join(changed[:10])}. A check only looks.]"
        return replace(found, is_passed=False, output=told.strip())

    def _open_checkout(self, report: PromotionReport) -> None:
        repository = self._repository
        repository.drop_worktree(self._checkout)
        head = repository.find_commit(f"refs/heads/{self.branch}")
        merge = repository.commit_tree(report.tree, (report.base, head), "To be checked")
        repository.open_worktree(self._checkout, merge)

    def _merge(self, report: PromotionReport, goal: str) -> PromotionReport:
        repository = self._repository
        head = repository.find_commit(f"refs/heads/{self.branch}")
        commit = repository.commit_tree(report.tree, (report.base, head), report.make_message(goal))
        if problem := repository.advance_branch(commit):
            return replace(report, outcome="in_the_way", reason=problem)
        return replace(report, outcome="promoted", commit=commit)
