"""A workflow: a loop over a collection, agents in parallel, a choice, all of it durable."""

from holdfast import Agent, Client, tool
from holdfast.orchestration.workflows import Workflow, step
from holdfast.providers import ModelRequest
from holdfast.testing import FunctionModel


@tool(effect="read")
def word_count(text: str) -> int:
    """Count words."""
    return len(text.split())


def answer(request: ModelRequest) -> str:
    """Think without a model."""
    return f"A thought on {request.messages[-1].text.removeprefix('Think about ')}"


thinker = Agent("thinker", model=FunctionModel(answer))

flow = (
    Workflow("essay", inputs={"topics": {"type": "array", "items": {"type": "string"}}})
    .loop(
        "think",
        step("thought", agent=thinker, message="Think about ${loop.item}", retry={"attempts": 3}),
        over="${inputs.topics}",
        parallel=2,
    )
    .step(
        "count",
        tool=word_count,
        args={"text": "${join(steps.think.output, ' ')}"},
        output={"type": "integer"},
    )
    .when(
        "verdict",
        "${steps.count.output > 100}",
        then=[step("long", value="long enough")],
        otherwise=[step("short", value="only ${steps.count.output} words")],
    )
    .returns({"thoughts": "${steps.think.output}", "verdict": "${steps.verdict.output}"})
)

with Client() as client:
    # The same line goes on after a crash, at the step that has not ended.
    result = client.workflows.run(flow, {"topics": ["sea", "sky"]}, run_id="essay-1")
    print(result.status, result.output)
