"""A trigger: a workflow that starts on an event, exactly once."""

from holdfast import Client
from holdfast.orchestration.workflows import Workflow

flow = Workflow("welcome", inputs={"title": {"type": "string"}}).step(
    "greet", value="Welcome, ${inputs.title}!"
)

with Client() as client:
    client.workflows.register(flow)
    client.triggers.add(
        {
            "name": "welcome-orders",
            "on": {"kinds": ["session.created"], "where": "'Order' in event.data.title"},
            "workflow": "welcome",
            "with": {"title": "${event.data.title}"},
        }
    )
    client.sessions.create("Order 17")
    client.triggers.run(once=True)
    client.triggers.run(once=True)  # nothing is left to do
    for firing in client.triggers.firings():
        print(firing.status, client.workflows.get(firing.run_id).output)
