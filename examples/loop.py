"""The autonomous loop with the offline model: plan, work, check, review, report."""

from pathlib import Path

from holdfast import Client
from holdfast.orchestration.loop import LoopOptions

Path("README.md").write_text("# Bridges\n\nA small project about bridges.\n")

with Client() as client:
    options = LoopOptions(model="offline")
    report = client.loops.run("Describe this workspace", run_id="describe-1", options=options)
    print(report.outcome, [f"{step.id}: {step.verdict}" for step in report.steps])
    print(client.loops.run("Describe this workspace", run_id="describe-1").to_markdown()[:120])
