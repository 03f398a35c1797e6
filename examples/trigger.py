"""A trigger: a workflow that starts on an event, exactly once."""

from holdfast import Client
from holdfast.orchestration.workflows import Workflow

flow = Workflow("welcome", inputs={"title": {"type": "string"}}).step(
    "greet", value="Welcome, ${inputs.title}!"
)

with Client() as client:
    client.register_workflow(flow)
    client.add_trigger(
        {
            "name": "welcome-orders",
            "on": {"kinds": ["session.created"], "where": "'Order' in event.data.title"},
            "workflow": "welcome",
            "with": {"title": "${event.data.title}"},
        }
    )
    client.create_session("Order 17")
    client.run_triggers(once=True)
    client.run_triggers(once=True)  # nothing is left to do
    for firing in client.list_firings():
        print(firing.status, client.get_workflow_run(firing.run_id).output)
