"""Plans: whatever the graph, the schedule keeps its order, and a circle is always found."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from holdfast.orchestration.loop import DraftPlan, find_problems, to_plan

CHECK = {"kind": "answer_contains"}


def draft(edges: dict[str, list[str]]) -> DraftPlan:
    return DraftPlan.model_validate(
        {
            "steps": [
                {
                    "id": name,
                    "title": name,
                    "instruction": "do",
                    "depends_on": before,
                    "checks": [CHECK],
                }
                for name, before in edges.items()
            ]
        }
    )


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    """A graph without circles, its steps in any order."""
    count = draw(st.integers(1, 25))
    names = [f"s{number}" for number in range(count)]
    edges = {
        name: sorted(draw(st.sets(st.sampled_from(names[:at]), max_size=4))) if at else []
        for at, name in enumerate(names)
    }
    order = draw(st.permutations(names))
    return {name: edges[name] for name in order}


@given(graphs(), st.integers(1, 6), st.randoms(use_true_random=False))
def test_every_step_runs_once_and_after_what_it_depends_on(
    edges: dict[str, list[str]], parallel: int, chance: random.Random
) -> None:
    plan_draft = draft(edges)
    assert find_problems(plan_draft) == []
    plan = to_plan(plan_draft)
    done: list[str] = []
    running: list[str] = []
    while len(done) < len(edges):
        free = parallel - len(running)
        for step in plan.ready(done, running)[:free]:
            assert set(edges[step.id]) <= set(done)
            running.append(step.id)
        assert running, "something is always ready until all is done"
        done.append(running.pop(chance.randrange(len(running))))
    assert sorted(done) == sorted(edges)


@given(graphs(), st.data())
def test_a_circle_is_always_found(edges: dict[str, list[str]], data: st.DataObject) -> None:
    names = sorted(edges)
    start = data.draw(st.sampled_from(names))
    path = [start]
    # Walk down the graph and tie its end to its beginning.
    while edges[path[-1]] and data.draw(st.booleans()):
        path.append(data.draw(st.sampled_from(edges[path[-1]])))
    tied = {name: list(before) for name, before in edges.items()}
    tied[path[-1]].append(start)
    found = find_problems(draft(tied))
    assert found
    assert "circle" in found[0] or "itself" in found[0]


@given(graphs(), st.data())
def test_an_unknown_dependency_and_a_doubled_id_are_always_found(
    edges: dict[str, list[str]], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(edges)))
    wrong = draft({**edges, name: [*edges[name], "nowhere"]})
    assert any("nowhere" in problem for problem in find_problems(wrong))
    doubled = draft(edges)
    doubled.steps.append(doubled.steps[0])
    assert any("twice" in problem for problem in find_problems(doubled))


@given(graphs())
def test_last_steps_are_those_on_which_nothing_depends(edges: dict[str, list[str]]) -> None:
    needed = {before for all_before in edges.values() for before in all_before}
    assert {step.id for step in to_plan(draft(edges)).list_last_steps()} == set(edges) - needed
