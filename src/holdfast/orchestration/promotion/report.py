"""What came of a promotion, with its evidence."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject

PromotionOutcome: TypeAlias = Literal[
    "promoted", "nothing_changed", "protected", "conflict", "checks_failed", "in_the_way"
]
_TOLD: dict[PromotionOutcome, str] = {
    "promoted": "Every check passed; it is merged.",
    "nothing_changed": "The run changed no file; there is nothing to merge.",
    "protected": "The run changed files that only a person changes; nothing is merged.",
    "conflict": "It cannot be merged without a person; nothing is merged.",
    "checks_failed": "A check failed; nothing is merged.",
    "in_the_way": "The branch or its files changed meanwhile; nothing is merged.",
}


class CheckEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """One check: what was run on what would be merged, and how it ended."""

    command: str
    is_passed: bool
    exit_code: int | None = None
    """`None` where it was not run, or did not end: refused, stopped."""
    seconds: float = 0.0
    output: str = ""


class PromotionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a guard did with the work of a run."""

    run_id: str
    outcome: PromotionOutcome
    target: str
    """The branch that it was for."""
    branch: str
    """The branch of the run; it is there as long as it is not merged."""
    worktree: str
    base: str
    tree: str = ""
    """What was checked; the commit that was merged has the same."""
    commit: str = ""
    """The merge, once it is one."""
    reason: str = ""
    files: tuple[str, ...] = ()
    checks: tuple[CheckEvidence, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Say whether there is work that was not merged."""
        return self.outcome not in ("promoted", "nothing_changed")

    def to_json(self) -> JsonObject:
        """Return it as JSON values."""
        return msgspec.json.decode(msgspec.json.encode(self), type=JsonObject)

    def to_markdown(self) -> str:
        """Return it as a page for people."""
        lines = [f"# Promotion of {self.run_id}: {self.outcome}", "", _TOLD[self.outcome]]
        if self.reason:
            lines += ["", self.reason]
        lines += ["", f"- into `{self.target}`, from `{self.branch}` at `{self.base[:12]}`"]
        if self.commit:
            lines.append(f"- merged as `{self.commit[:12]}`")
        elif self.is_refused:
            lines.append(f"- the work is in `{self.worktree}`")
        if self.tree:
            lines.append(f"- tree that was checked: `{self.tree}`")
        if self.files:
            lines += ["", "## Files", "", *(f"- `{name}`" for name in self.files)]
        if self.checks:
            lines += ["", "## Checks", ""]
        for check in self.checks:
            verdict = "passed" if check.is_passed else "FAILED"
            code = "" if check.exit_code is None else f", exit code {check.exit_code}"
            lines.append(f"- {verdict}: `{check.command}` ({check.seconds:.1f} s{code})")
            if not check.is_passed and check.output:
                shown = check.output[-4000:].strip().replace("```", "'''")
                lines += ["", "```text", *shown.splitlines(), "```", ""]
        return "\n".join(lines).rstrip() + "\n"

    def make_message(self, goal: str) -> str:
        """Return the message of the merge, with the evidence in its trailers."""
        title = " ".join(goal.split())[:60] or self.branch
        checked = [f"Holdfast-Check: {one.command} (exit code {one.exit_code})"
                   for one in self.checks]  # fmt: skip
        trailers = [f"Holdfast-Run: {self.run_id}", f"Holdfast-Tree: {self.tree}", *checked]
        return "\n".join([f"Merge {self.branch}: {title}", "", *trailers]) + "\n"
