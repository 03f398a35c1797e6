"""Approve: a call that asks waits for consent; here a rule of yours gives it."""

from holdfast import Agent, tool
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools import ApprovalAnswer, ApprovalRequest


@tool(permission="ask", target="path")
def delete(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


class OnlyDrafts:
    """Consents to drafts; `holdfast.ask_in_terminal` would ask a person instead."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Look at what the call touches."""
        is_draft = all(target.startswith("draft-") for target in request.targets)
        return ApprovalAnswer(verdict="allow" if is_draft else "deny", by="OnlyDrafts")


model = ScriptedModel(
    [tool_call("delete", path="draft-1.txt"), tool_call("delete", path="thesis.txt")],
    "One is gone, the other one stays.",
)
result = Agent("janitor", model=model, tools=[delete], approve=OnlyDrafts()).run_sync("Clean up")
print(result.response)
for part in model.requests[1].messages[-1].tool_calls:
    print(part.input["path"], part.state)
