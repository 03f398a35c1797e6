"""`client.loops`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, loops


class LoopNamespace(Surface[Mode]):
    """The autonomous loop."""

    run = loops.run
    submit = loops.submit
    stream = loops.stream
    state = loops.state
    report = loops.report
    replay = loops.replay
    export = loops.export
    load = loops.load
