"""Agents for other agents that speak A2A 1.0: JSON-RPC below `/a2a`, signed cards beside it.

`card.py` describes an agent and signs that, `asked.py` reads messages, `tasks.py` tells a run as
a task, `events.py` a run as it happens, `failures.py` what went wrong, `face.py` answers over HTTP.
A task is a run, a context is a session. What a peer says is untrusted: its session carries the
label before the model reads it, and the gate decides with it.
"""
