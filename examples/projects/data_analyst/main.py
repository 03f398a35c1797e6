"""A data analyst: SQL that can only read, a typed answer, and a budget."""

from __future__ import annotations

import argparse
import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path

from pydantic import BaseModel

from holdfast import Agent, Client, tool
from holdfast.policy import Budget
from holdfast.providers import Model
from holdfast.testing import ScriptedModel, tool_call

TABLE = Path(__file__).with_name("coffee.csv")


class Answer(BaseModel):
    """What was asked, in numbers."""

    shop: str
    cups: int


@tool(effect="read")
def query(sql: str) -> str:
    """Ask the table coffee(day, shop, cups) with SQL; nothing can be changed."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE coffee (day INTEGER, shop TEXT, cups INTEGER)")
        with TABLE.open(newline="") as file:
            rows = [(row["day"], row["shop"], row["cups"]) for row in csv.DictReader(file)]
        database.executemany("INSERT INTO coffee VALUES (?, ?, ?)", rows)
        # The database itself refuses everything but reading, whatever the model writes.
        database.execute("PRAGMA query_only = ON")
        allowed = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION}
        database.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY
        )
        return json.dumps(database.execute(sql).fetchmany(100))


def rehearse() -> Model:
    """Play the model: a query that is refused, one that works, the answer."""
    return ScriptedModel(
        tool_call("query", sql="DELETE FROM coffee"),
        tool_call(
            "query", sql="SELECT shop, SUM(cups) FROM coffee GROUP BY shop ORDER BY 2 DESC LIMIT 1"
        ),
        '{"shop": "south", "cups": 220}',
    )


def main() -> None:
    """Ask one question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="a real model, such as openai:gpt-5.2")
    chosen = parser.parse_args().model
    analyst = Agent("analyst", model=chosen or rehearse(), tools=[query], output=Answer)
    with Client() as client:
        result = client.runs.execute(
            analyst, "", "Which shop sold the most cups?", budget=Budget(max_calls=12)
        )
        for call in reversed(client.tools.history(result.session_id)):
            print(f"{call.tool}: {call.state}")
        print(repr(result.output))


if __name__ == "__main__":
    main()
