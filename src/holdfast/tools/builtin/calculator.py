"""The `calculator` tool: arithmetic that is right, for agents whose rules name it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from holdfast.errors import TellModel
from holdfast.tools.definition import tool


@tool(
    effect="read",
    tags=("optional",),
    examples=({"operation": "multiply", "a": 15, "b": 23},),
)
async def calculator(
    operation: Annotated[
        Literal["add", "subtract", "multiply", "divide"], Field(description="What to calculate")
    ],
    a: Annotated[float, Field(description="First number")],
    b: Annotated[float, Field(description="Second number")],
) -> str:
    """Add, subtract, multiply or divide two numbers."""
    match operation:
        case "add":
            value = a + b
        case "subtract":
            value = a - b
        case "multiply":
            value = a * b
        case "divide":
            if b == 0:
                raise TellModel("Nothing can be divided by zero.", retry=False)
            value = a / b
    return f"{value:.15g}"
