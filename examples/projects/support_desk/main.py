"""A support desk: it answers from help pages, and a refund waits for a person."""

from __future__ import annotations

import argparse
from pathlib import Path

from holdfast import Agent, Client, tool
from holdfast.providers import Model
from holdfast.testing import ScriptedModel, tool_call

HELP = Path(__file__).with_name("help")
refunds: list[str] = []


@tool(effect="read")
def search_help(words: str) -> str:
    """Find help pages that hold any of these words."""
    wanted = words.lower().split()
    found = [
        page.read_text()
        for page in sorted(HELP.glob("*.md"))
        if any(word in page.read_text().lower() for word in wanted)
    ]
    return "\n\n".join(found) or "There is no such page."


@tool(effect="unsafe", permission="ask", target="order")
def refund(order: str, euros: float) -> str:
    """Pay an order back; cannot be undone."""
    refunds.append(order)
    return f"{euros:.2f} euros for {order} are on their way."


def rehearse() -> Model:
    """Play the model: look it up, refund, answer."""
    return ScriptedModel(
        tool_call("search_help", words="parcel lost"),
        tool_call("refund", order="A-17", euros=40.0),
        "I am sorry. Your parcel counts as lost after seven days; we have refunded 40 euros.",
    )


def main() -> None:
    """Answer one customer, and stand in for the person at the desk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="a real model, such as openai:gpt-5.2")
    chosen = parser.parse_args().model
    desk = Agent(
        "desk",
        model=chosen or rehearse(),
        tools=[search_help, refund],
        prompt="You answer customers. Look into the help pages first. Lost parcels are refunded.",
    )
    with Client() as client:
        session = client.sessions.create("Customer 4711")
        result = client.runs.execute(
            desk, session.id, "My parcel A-17 (40 euros) never came; it is ten days now.",
            on_ask="park",
        )  # fmt: skip
        while result.status == "parked":
            for asked in client.approvals.questions():
                print(f"waits for a person: {asked.tool} {asked.request.get('arguments', '')}")
                client.approvals.approve(asked.id, by="ann")
            # Any process may go on, now or tomorrow.
            result = client.runs.execute(desk, session.id, "", run_id=result.run_id, on_ask="park")
        print(result.response)
        print(f"refunds: {refunds}")


if __name__ == "__main__":
    main()
