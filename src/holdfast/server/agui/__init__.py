"""Agents for user interfaces that speak AG-UI: a run as a stream of events, below `/agui/AGENT`.

`asked.py` reads what a request asks for, `events.py` makes the events of a run, `face.py` answers
over HTTP. A thread is the client's own: its messages come whole with each request, as does the
state that the interface shares with the agent. An interrupt is what a person has to say.
"""

from __future__ import annotations
