"""`client.runs`."""

from __future__ import annotations

from holdfast.client.handles import StartsRun
from holdfast.operations import Mode, Surface, runs


class RunNamespace(Surface[Mode]):
    """Runs: start, follow, end."""

    execute = runs.execute
    stream = runs.stream
    start = StartsRun(runs.start)
    submit = runs.submit
    wait = runs.wait
    result = runs.result
    follow = runs.follow
    events = runs.events
    get = runs.get
    request = runs.request
    list = runs.list_
    find = runs.find
    cancel = runs.cancel
    steer = runs.steer
    steer_run = runs.steer_run
    fork = runs.fork
    await_answer = runs.await_answer
    interrupted = runs.interrupted
    children = runs.children
    cancel_children = runs.cancel_children
    waiting = runs.waiting
    answer_calls = runs.answer_calls
    wake = runs.wake
    family_events = runs.family_events
    watch_family = runs.watch_family
    orchestrator = runs.orchestrator
    execute_request = runs.execute_request
    turns = runs.turns
    trace = runs.trace
