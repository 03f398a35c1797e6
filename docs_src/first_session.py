from holdfast import Client

with Client() as client:
    session = client.sessions.create("Math Help")
    client.messages.add(session.id, "user", "What is 15 times 23?")
    print(client.sessions.get(session.id).message_count)
