"""Metrics of the work follow from the journal, with names by convention and bounded labels."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Agent, AsyncClient, tool
from holdfast.cli.app import root
from holdfast.messages import TokenUsage
from holdfast.runtime import WorkMetrics
from holdfast.settings import load_settings
from holdfast.testing import ModelReply, ScriptedModel, tool_call

ROOT = Path(__file__).parents[3]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def open_client(place: Path, **more: object) -> AsyncClient:
    chosen = {"storage.state_dir": str(place / "state"), "workspace": str(place), **more}
    return AsyncClient(settings=load_settings(overrides=chosen).settings)


def read(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_runs_models_tools_tokens_and_errors_are_counted(tmp_path: Path) -> None:
    async with open_client(tmp_path, **{"budget.max_calls": 10}) as client:
        usage = TokenUsage(input=7, output=3)
        call = tool_call("add", a=1, b=2)
        model = ScriptedModel(
            ModelReply(calls=(call,), usage=usage), ModelReply(text="3", usage=usage)
        )
        await client.runs.execute(Agent("adder", model=model, tools=[add]), "", "Add")
        found = read(await client.usage.metrics())
    assert found["holdfast_runs_total", ("completed",)] == 1
    assert found["holdfast_run_duration_seconds_count", ("completed",)] == 1
    assert found["holdfast_run_queue_wait_seconds_count", ()] == 1
    assert found["holdfast_tool_duration_seconds_count", ("add",)] == 1
    tokens = {key[1][2]: value for key, value in found.items() if key[0].endswith("tokens_total")}
    assert (tokens["input"], tokens["output"]) == (14, 6)
    assert found["holdfast_runs_waiting", ("queued",)] == 0
    assert found["holdfast_approvals_waiting", ()] == 0
    assert found["holdfast_budget_used_ratio", ("calls", "default")] == 0.2
    assert found["holdfast_store_read_seconds_count", ()] >= 1


async def test_labels_are_bounded_and_nothing_is_counted_twice(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    metrics = WorkMetrics(registry)
    async with open_client(tmp_path) as client:
        runtime = client._runtime
        await runtime.opened()
        await metrics.begin([runtime])
        await client.runs.execute("build", "", "What is 15 times 23?")
        await metrics.update([runtime])
        await metrics.update([runtime])
        for number in range(300):
            metrics._take("errors", f"code.{number}").inc()
    found = read(generate_latest(registry).decode())
    assert found["holdfast_runs_total", ("completed",)] == 1
    codes = [key for key in found if key[0] == "holdfast_errors_total"]
    assert len(codes) == 101
    assert found["holdfast_errors_total", ("other",)] == 200


def test_file_for_processes_without_a_server_is_written_whole(tmp_path: Path) -> None:
    place = {"AGENT_STATE_DIR": str(tmp_path / "state"), "AGENT_WORKSPACE": str(tmp_path)}
    target = tmp_path / "holdfast.prom"
    done = CliRunner().invoke(root, ["metrics", "--to", str(target)], env=place)
    assert done.exit_code == 0, done.output
    assert ("holdfast_approvals_waiting", ()) in read(target.read_text())


def test_alerts_and_dashboard_ask_only_for_metrics_that_there_are(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    WorkMetrics(registry)
    known = {family.name for family in registry.collect()}
    known |= {f"holdfast_http_{name}" for name in ("requests", "request_seconds")}
    alerts = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    asked = [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    board = json.loads((ROOT / "deploy/grafana/holdfast.json").read_text())
    asked += [one["expr"] for panel in board["panels"] for one in panel["targets"]]
    named = {name for one in asked for name in re.findall(r"holdfast_[a-z_]+", one)}
    assert named
    assert {re.sub(r"_(total|bucket)$", "", name) for name in named} <= known
