"""What a durable step costs in peers, on the same Postgres; run by their own interpreter.

    PEERS/bin/python benchmarks/_postgres_peers.py dbos|langgraph CONNINFO STEPS

Prints seconds per step. A step adds two numbers; what is measured is what is kept of it.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import TypedDict


def measure_dbos(url: str, steps: int) -> float:
    """One workflow of so many steps; the first one warms up."""
    DBOS = import_module("dbos").DBOS
    config = {
        "name": "bench",
        "system_database_url": url,
        "run_admin_server": False,
        "log_level": "ERROR",
    }
    DBOS(config=config)

    @DBOS.step()  # type: ignore[untyped-decorator]
    def add(a: int, b: int) -> int:
        return a + b

    @DBOS.workflow()  # type: ignore[untyped-decorator]
    def work(count: int) -> int:
        total = 0
        for number in range(count):
            total = add(total, number)
        return total

    DBOS.launch()
    work(10)
    began = time.perf_counter()
    work(steps)
    took = time.perf_counter() - began
    DBOS.destroy()
    return took / steps


def measure_langgraph(url: str, steps: int) -> float:
    """One graph whose node runs so often, with its Postgres saver."""
    saving = import_module("langgraph.checkpoint.postgres")
    graphs = import_module("langgraph.graph")

    class State(TypedDict):
        total: int
        count: int

    def add(state: State) -> State:
        return {"total": state["total"] + state["count"], "count": state["count"] - 1}

    graph = graphs.StateGraph(State)
    graph.add_node("add", add)
    graph.add_edge(graphs.START, "add")
    graph.add_conditional_edges("add", lambda one: "add" if one["count"] > 0 else graphs.END)
    with saving.PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        app = graph.compile(checkpointer=saver)
        options = {"recursion_limit": steps + 10}
        app.invoke({"total": 0, "count": 10}, {**options, "configurable": {"thread_id": "warm"}})
        began = time.perf_counter()
        name = {"thread_id": f"t{began}"}
        app.invoke({"total": 0, "count": steps}, {**options, "configurable": name})
        return (time.perf_counter() - began) / steps


if __name__ == "__main__":
    known = {"dbos": measure_dbos, "langgraph": measure_langgraph}
    sys.stdout.write(f"{known[sys.argv[1]](sys.argv[2], int(sys.argv[3]))}\n")
