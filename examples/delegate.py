"""One agent lets two others work at the same time, and sums up what they report."""

from holdfast import Agent, Client
from holdfast.testing import FunctionModel, ScriptedModel, tool_call

left = Agent("left", mode="subagent", model=FunctionModel(lambda _: "The left door is open."))
right = Agent("right", mode="subagent", model=FunctionModel(lambda _: "The right one is shut."))

calls = [
    tool_call("task", subagent_type=name, prompt="Look at your door.") for name in ("left", "right")
]
boss = Agent(
    "boss",
    model=ScriptedModel(calls, "Go left."),
    permission=[{"permission": "task", "action": "allow"}],
)

with Client() as client:
    client.agents.register(left)
    client.agents.register(right)
    result = client.runs.execute(boss, "", "Which way?")
    for one in client.runs.family_events(result.session_id):
        if one.event.kind == "run.completed":
            print("done:", one.path or "boss")
    print(result.response)
