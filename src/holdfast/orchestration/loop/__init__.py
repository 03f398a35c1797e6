"""The autonomous loop: plan, work, check, review, until the evidence says that it is over.

`plan` is a sound graph of steps, `checks` make what proves a step, `verdict` is what a reviewer
says, `driver` does the next thing, `state` is where it stands, `report` is what it did, and
`checkpoint` is the file that another machine can go on from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.orchestration.loop import events as events
    from holdfast.orchestration.loop.checkpoint import RunFiles as RunFiles
    from holdfast.orchestration.loop.checkpoint import RunRecords as RunRecords
    from holdfast.orchestration.loop.checkpoint import parse_run_file as parse_run_file
    from holdfast.orchestration.loop.crew import Crew as Crew
    from holdfast.orchestration.loop.driver import LoopDriver as LoopDriver
    from holdfast.orchestration.loop.driver import LoopListener as LoopListener
    from holdfast.orchestration.loop.driver import LoopNews as LoopNews
    from holdfast.orchestration.loop.events import StepStarted as StepStarted
    from holdfast.orchestration.loop.options import CheckFunction as CheckFunction
    from holdfast.orchestration.loop.options import LoopAgents as LoopAgents
    from holdfast.orchestration.loop.options import LoopLimits as LoopLimits
    from holdfast.orchestration.loop.options import LoopOptions as LoopOptions
    from holdfast.orchestration.loop.options import LoopSetup as LoopSetup
    from holdfast.orchestration.loop.options import StepEvidence as StepEvidence
    from holdfast.orchestration.loop.plan import Check as Check
    from holdfast.orchestration.loop.plan import DraftPlan as DraftPlan
    from holdfast.orchestration.loop.plan import Plan as Plan
    from holdfast.orchestration.loop.plan import PlannedStep as PlannedStep
    from holdfast.orchestration.loop.plan import find_problems as find_problems
    from holdfast.orchestration.loop.plan import to_plan as to_plan
    from holdfast.orchestration.loop.report import LoopOutcome as LoopOutcome
    from holdfast.orchestration.loop.report import LoopReport as LoopReport
    from holdfast.orchestration.loop.report import make_report as make_report
    from holdfast.orchestration.loop.state import LoopState as LoopState
    from holdfast.orchestration.loop.state import carry_over as carry_over
    from holdfast.orchestration.loop.state import fold as fold
    from holdfast.orchestration.loop.verdict import Verdict as Verdict
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "events": "StepStarted",
            "crew": "Crew",
            "checkpoint": "RunFiles RunRecords parse_run_file",
            "driver": "LoopDriver LoopListener LoopNews",
            "options": "CheckFunction LoopAgents LoopLimits LoopOptions LoopSetup StepEvidence",
            "plan": "Check DraftPlan Plan PlannedStep find_problems to_plan",
            "report": "LoopOutcome LoopReport make_report",
            "state": "LoopState carry_over fold",
            "verdict": "Verdict",
        },
        rooms=("events",),
    )
