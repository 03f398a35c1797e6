"""One tool: an agent that calls a function of yours."""

from holdfast import Agent, tool


@tool(effect="read")
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


agent = Agent("helper", tools=[multiply])
print(agent.run_sync("What is 15 times 23?").response)
