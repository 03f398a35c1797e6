"""The autonomous loop: plan, work, check, review, until the evidence says that it is over.

`plan` is a sound graph of steps, `checks` make what proves a step, `verdict` is what a reviewer
says, `driver` does the next thing, `state` is where it stands, `report` is what it did, and
`checkpoint` is the file that another machine can go on from.
"""

from holdfast.orchestration.loop.checkpoint import RunFiles, RunRecords, parse_run_file
from holdfast.orchestration.loop.driver import LoopDriver, LoopListener, LoopNews
from holdfast.orchestration.loop.options import (
    CheckFunction,
    LoopAgents,
    LoopLimits,
    LoopOptions,
    StepEvidence,
)
from holdfast.orchestration.loop.plan import (
    Check,
    DraftPlan,
    Plan,
    PlannedStep,
    problems_of,
    to_plan,
)
from holdfast.orchestration.loop.report import LoopReport, make_report
from holdfast.orchestration.loop.roles import LOOP_AGENT
from holdfast.orchestration.loop.state import LoopState, carried_over, fold
from holdfast.orchestration.loop.verdict import Verdict

__all__ = [
    "LOOP_AGENT",
    "Check",
    "CheckFunction",
    "DraftPlan",
    "LoopAgents",
    "LoopDriver",
    "LoopLimits",
    "LoopListener",
    "LoopNews",
    "LoopOptions",
    "LoopReport",
    "LoopState",
    "Plan",
    "RunFiles",
    "RunRecords",
    "PlannedStep",
    "StepEvidence",
    "Verdict",
    "carried_over",
    "fold",
    "make_report",
    "parse_run_file",
    "problems_of",
    "to_plan",
]
