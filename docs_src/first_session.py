from holdfast import Client

with Client() as client:
    session = client.create_session("Math Help")
    client.add_message(session.id, "user", "What is 15 times 23?")
    print(client.get_session(session.id).message_count)
