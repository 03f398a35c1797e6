"""Test an agent without a model: the script answers, the tools are real."""

from holdfast import Agent, tool
from holdfast.testing import ScriptedModel, tool_call


@tool(effect="read")
def stock(article: str) -> int:
    """How many there are."""
    return {"apple": 3}.get(article, 0)


def test_the_agent_looks_before_it_promises() -> None:
    """The stock is asked for, and the model gets the number."""
    model = ScriptedModel(tool_call("stock", article="apple"), "We have three.")
    result = Agent("clerk", model=model, tools=[stock]).run_sync("Any apples?")
    assert result.response == "We have three."
    assert model.requests[1].messages[-1].tool_calls[0].output == "3"


test_the_agent_looks_before_it_promises()
print("passed")
