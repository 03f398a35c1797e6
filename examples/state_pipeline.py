"""Pipeline: each stage reads what the one before it left, as a workflow with typed values."""

import asyncio

from pydantic import BaseModel

from holdfast import AsyncClient, tool
from holdfast.orchestration.workflows import Workflow
from holdfast.tools import ToolContext


class Order(BaseModel):
    """What the stages hand on."""

    item: str
    price: float
    total: float = 0.0


@tool(effect="idempotent")
async def take(item: str, price: float, context: ToolContext) -> str:
    """Take an order."""
    await context.state.scope("workflow").set("order", Order(item=item, price=price), schema=Order)
    return "taken"


@tool(effect="idempotent")
async def add_tax(percent: float, context: ToolContext) -> str:
    """Add the tax to the order."""

    def taxed(order: Order) -> Order:
        return order.model_copy(update={"total": order.price * (1 + percent / 100)})

    entry = await context.state.scope("workflow").update("order", taxed, schema=Order)
    return f"version {entry.version}"


flow = (
    Workflow("shop")
    .step("take", tool=take, args={"item": "kettle", "price": 40.0})
    .step("tax", tool=add_tax, args={"percent": 25.0}, needs=["take"])
    .step("order", state="workflow/order", needs=["tax"])
    .step("last", state="project/last-order", set="${steps.order.output.item}", needs=["order"])
    .returns("${steps.order.output}")
)


async def main() -> None:
    """Run the stages."""
    async with AsyncClient() as client:
        result = await client.workflows.run(flow)
        print(result.output)
        print(await client.state.get("project/last-order"))
        for change in reversed(await client.state.history("workflow:shop/order")):
            print(change.version, change.cause, change.value["total"])


asyncio.run(main())
