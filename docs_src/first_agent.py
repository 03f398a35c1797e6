from holdfast import Agent, tool


@tool(effect="read")
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


agent = Agent("helper", tools=[multiply])
print(agent.run_sync("What is 15 times 23?", run_id="sum-1").response)
