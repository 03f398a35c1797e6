"""Resume: the same call with the same run_id goes on after a crash, and never repeats a step."""

from holdfast import Agent, tool
from holdfast.testing import ScriptedModel, tool_call

charges: list[int] = []


@tool
def charge(amount: int) -> str:
    """Charge the customer; must not happen twice."""
    charges.append(amount)
    return "charged"


model = ScriptedModel(tool_call("charge", amount=5), "Thank you for the order.")
agent = Agent("shop", model=model, tools=[charge])

print(agent.run_sync("Order 1 is paid by card", run_id="order-1").response)
print(agent.run_sync("Order 1 is paid by card", run_id="order-1").response)  # as after a restart
print(f"charged {len(charges)} time")
