"""Steps run when what they need has ended, each once, and circles are always found."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from holdfast.orchestration.workflows import Workflow, loop, parallel, step, when
from holdfast.orchestration.workflows.definition import StepRetry
from holdfast.orchestration.workflows.graph import to_json, to_mermaid, to_svg
from holdfast.orchestration.workflows.order import (
    Schedule,
    find_cycle,
    list_all_before,
    list_layers,
)


@st.composite
def graphs(draw: st.DrawFn, *, acyclic: bool) -> dict[str, frozenset[str]]:
    count = draw(st.integers(1, 12))
    names = [f"s{number}" for number in range(count)]
    return {
        name: frozenset(
            draw(st.lists(st.sampled_from(names[:place] if acyclic else names), max_size=3))
            if place or not acyclic
            else []
        )
        for place, name in enumerate(names)
    }


@given(graphs(acyclic=True), st.integers(1, 4), st.randoms())
def test_every_step_runs_once_after_what_it_needs(
    needs: dict[str, frozenset[str]], room: int, random: object
) -> None:
    schedule = Schedule(needs)
    ended: list[str] = []
    running: list[str] = []
    while not schedule.is_over:
        assert not schedule.is_stuck
        running += schedule.take(room - len(running))
        assert 0 < len(running) <= room
        assert all(needs[name] <= set(ended) for name in running)
        name = running.pop(random.randrange(len(running)))  # type: ignore[attr-defined]
        schedule.end(name)
        ended.append(name)
    assert sorted(ended) == sorted(needs)


@given(graphs(acyclic=False))
def test_a_circle_is_found_exactly_where_there_is_one(needs: dict[str, frozenset[str]]) -> None:
    circle = find_cycle(needs)
    if circle:
        assert circle[0] == circle[-1]
        assert all(b in needs[a] for a, b in zip(circle, circle[1:], strict=False))
        schedule = Schedule(needs)
        while taken := schedule.take(100):
            for name in taken:
                schedule.end(name)
        assert schedule.is_stuck
    else:
        assert sum(map(len, list_layers(needs))) == len(needs)
        before = list_all_before(needs)
        assert all(name not in before[name] and needs[name] <= before[name] for name in needs)


@given(graphs(acyclic=True), st.data())
def test_what_waits_holds_up_only_what_needs_it(
    needs: dict[str, frozenset[str]], data: st.DataObject
) -> None:
    stuck = data.draw(st.sampled_from(sorted(needs)))
    schedule = Schedule(needs)
    ended: set[str] = set()
    while taken := schedule.take(100):
        for name in taken:
            if name == stuck:
                schedule.stop(name)
            else:
                schedule.end(name)
                ended.add(name)
    behind = {name for name, wanted in list_all_before(needs).items() if stuck in wanted}
    assert ended == set(needs) - behind - {stuck}


TEXTS = st.text(max_size=30)


@st.composite
def flows(draw: st.DrawFn) -> Workflow:
    """Workflows of all shapes with texts of all kinds."""
    counter = iter(range(1000))

    def make(depth: int):
        name = f"s{next(counter)}"
        text = draw(TEXTS).replace("$", "")
        kind = draw(st.sampled_from(["value", "parallel", "loop", "when"])) if depth else "value"
        inner = [make(depth - 1) for _ in range(draw(st.integers(1, 3)))] if kind != "value" else []
        match kind:
            case "parallel":
                return parallel(name, *inner, description=text)
            case "loop":
                return loop(name, *inner, times=2)
            case "when":
                return when(name, "true", then=inner, otherwise=[make(0)])
        return step(name, tool=text.strip() or "t", args={"x": text}, on_error="continue")

    return Workflow("any").add(*[make(2) for _ in range(draw(st.integers(1, 4)))])


@given(flows())
def test_every_workflow_can_be_drawn_whatever_its_texts_are(flow: Workflow) -> None:
    definition = flow.definition
    assert type(definition).model_validate(definition.to_json()) == definition
    picture = ElementTree.fromstring(to_svg(definition))
    boxes = picture.findall("{http://www.w3.org/2000/svg}rect")
    graph = to_json(definition)
    assert len(boxes) == len(graph["nodes"]) + 1
    assert len(picture.findall("{http://www.w3.org/2000/svg}path")) == len(graph["edges"])
    mermaid = to_mermaid(definition)
    assert mermaid.count("subgraph") == sum(
        1 for line in mermaid.split("\n") if line.strip() == "end"
    )


@given(st.integers(1, 10_000), st.floats(0, 3600), st.floats(1, 10), st.floats(0, 86_400))
def test_the_wait_between_attempts_grows_and_is_bounded(
    attempt: int, wait: float, factor: float, most: float
) -> None:
    retry = StepRetry(wait=wait, factor=factor, most_wait=most)
    assert 0 <= retry.wait_after(attempt) <= retry.wait_after(attempt + 1) <= most
