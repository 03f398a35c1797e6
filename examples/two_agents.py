"""Two agents, one conversation: each sees what the other said."""

from holdfast import Agent, Client
from holdfast.testing import ScriptedModel

writer = Agent("writer", prompt="You write.", model=ScriptedModel("Roses are red."))
critic = Agent("critic", prompt="You judge.", model=ScriptedModel("Too short."))

with Client() as client:
    session = client.sessions.create("A poem")
    writer.run_sync("Write a poem.", session=session.id, client=client)
    critic.run_sync("What do you think?", session=session.id, client=client)
    for message in client.messages.list(session.id).items:
        print(f"{message.agent or message.role}: {message.text}")
