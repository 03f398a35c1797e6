"""One prompt of an editor: a run of an agent, followed to its end, asking the person in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import acp
from acp import RequestError, schema

from holdfast.agents import AgentResult
from holdfast.canonical import JsonObject
from holdfast.errors import HoldfastError
from holdfast.ids import make_id
from holdfast.messages import FilePart, TextPart, ToolPart
from holdfast.operations import OWNER, approvals, runs
from holdfast.providers import Finished, ReasoningDelta, TextDelta
from holdfast.runtime import OpenQuestion, Runtime
from holdfast.server.acp.updates import end_call, find_kind, make_plan, start_call
from holdfast.server.face_runs import start_run

_MOST_ROUNDS: Final = 200
_SHOWN: Final = 4_000
_BY: Final = OWNER.subject
_OPTIONS: Final[dict[str, tuple[str, schema.PermissionOptionKind]]] = {
    "allow": ("Allow", "allow_once"),
    "always": ("Always allow", "allow_always"),
    "deny": ("Reject", "reject_once"),
}
Content: TypeAlias = Sequence[TextPart | FilePart]


class PromptTurn:
    """One prompt, and its answer."""

    def __init__(
        self, runtime: Runtime, editor: acp.Client, session_id: str, folder: str, agent: str
    ) -> None:
        """Let an agent answer in a session, for an editor."""
        self._runtime = runtime
        self._editor = editor
        self._session_id = session_id
        self._folder = folder
        self._agent = agent
        self._said = ""
        self.run_id = make_id("run")
        self.is_cancelled = False

    async def run(self, content: Content | str) -> schema.PromptResponse:
        """Answer a prompt; what the run asks for goes to the person.

        Raises:
            RequestError: the run failed.
        """
        message: Content | str = content
        for _ in range(_MOST_ROUNDS):
            items = await start_run(
                self._runtime,
                OWNER,
                agent_name=self._agent,
                session_id=self._session_id,
                user_message=message,
                run_id=self.run_id,
                on_ask="park",
            )
            result = await self._follow(items)
            message = ""
            if result.status != "parked" or self.is_cancelled:
                return self._end(result)
            if not await self._ask():
                return schema.PromptResponse(stop_reason="end_turn")
        raise RequestError.internal_error({"detail": "the run asked too often"})

    async def cancel(self) -> None:
        """End the run."""
        self.is_cancelled = True
        try:
            await runs.cancel.perform(
                self._runtime, OWNER, self.run_id, reason="the editor cancelled it"
            )
        except HoldfastError:
            return  # it has not begun, or has ended

    # --- inside -----------------------------------------------------------------------

    async def _follow(self, items: Any) -> AgentResult:  # noqa: ANN401 - an async generator
        result: AgentResult | None = None
        async for item in items:
            if isinstance(item, AgentResult):
                result = item
            else:
                for update in self._make_updates(item):
                    await self._editor.session_update(self._session_id, update)
        assert result is not None
        return result

    def _make_updates(self, item: object) -> list[Any]:
        if isinstance(item, TextDelta) and item.text:
            self._said += item.text
            return [acp.update_agent_message_text(item.text)]
        if isinstance(item, ReasoningDelta) and item.text:
            return [acp.update_agent_thought_text(item.text)]
        if isinstance(item, Finished):
            text, self._said = item.message.text, self._said
            made: list[Any] = []
            if text and not self._said.endswith(text):
                made.append(acp.update_agent_message_text(text))
            self._said = ""
            return made + [start_call(one, self._folder) for one in item.message.tool_calls]
        if isinstance(item, ToolPart):
            plan = make_plan(item)
            return [end_call(item, self._folder), *([plan] if plan is not None else [])]
        return []

    def _end(self, result: AgentResult) -> schema.PromptResponse:
        if result.status == "cancelled" or self.is_cancelled:
            return schema.PromptResponse(stop_reason="cancelled")
        if result.status == "failed":
            detail = str(result.error) if result.error is not None else "the run failed"
            raise RequestError(-32603, detail[:1_000], {"run_id": result.run_id})
        used = result.tokens_used
        usage = schema.Usage(
            input_tokens=used.input, output_tokens=used.output, total_tokens=used.total
        )
        return schema.PromptResponse(stop_reason="end_turn", usage=usage)

    async def _ask(self) -> bool:
        """Put to the person what the run waits for; says whether it can go on."""
        waiting = await runs.waiting.perform(self._runtime, OWNER, self.run_id)
        if not waiting:
            return False
        for one in waiting:
            if one.reason == "approval":
                await self._ask_permission(one)
            elif one.reason == "question":
                if not await self._ask_question(one):
                    return False
            else:
                text = f"\n\n(The run {one.run_id} waits: {one.reason}.)"
                update = acp.update_agent_message_text(text)
                await self._editor.session_update(self._session_id, update)
                return False
        return True

    async def _ask_permission(self, one: OpenQuestion) -> None:
        arguments = one.request.get("arguments")
        given: JsonObject = arguments if isinstance(arguments, dict) else {}
        part = ToolPart(call_id=one.call_id, tool=one.tool, input=given)
        shown = start_call(part, self._folder)
        preview = str(one.request.get("preview") or "")[:_SHOWN]
        content: list[Any] = list(shown.content or [])
        if preview and not content:
            content.append(acp.tool_content(acp.text_block(preview)))
        call = schema.ToolCallUpdate(
            tool_call_id=one.call_id,
            title=f"{one.agent_path}: {shown.title}" if "/" in one.agent_path else shown.title,
            kind=find_kind(one.tool),
            status="pending",
            content=content or None,
            locations=shown.locations,
            raw_input=given,
        )
        options = [
            schema.PermissionOption(option_id=id, name=name, kind=kind)
            for id, (name, kind) in _OPTIONS.items()
        ]
        said = await self._editor.request_permission(self._session_id, call, options)
        chosen = getattr(said.outcome, "option_id", "")
        await self._answer_permission(one, chosen)

    async def _answer_permission(self, one: OpenQuestion, chosen: str) -> None:
        runtime = self._runtime
        if chosen == "always":
            try:
                await approvals.approve.perform(runtime, OWNER, one.id, by=_BY, always=True)
            except HoldfastError:  # no rule would be as narrow as this call
                await approvals.approve.perform(runtime, OWNER, one.id, by=_BY)
        elif chosen == "allow":
            await approvals.approve.perform(runtime, OWNER, one.id, by=_BY)
        else:
            await approvals.deny.perform(
                runtime, OWNER, one.id, by=_BY, reason="refused in the editor"
            )

    async def _ask_question(self, one: OpenQuestion) -> bool:
        """Ask by choices where there are some; says whether it was answered.

        A free answer is the person's next prompt: the turn ends with the question.
        """
        asked = one.request.get("questions")
        questions = [each for each in asked if isinstance(each, dict)] if asked else []
        lines = []
        for number, each in enumerate(questions, 1):
            labels = [str(option.get("label")) for option in each.get("options") or ()]
            if not labels:
                await self._say("\n\n".join(str(every.get("question")) for every in questions))
                return False
            call = schema.ToolCallUpdate(
                tool_call_id=f"{one.call_id}:{number}",
                title=str(each.get("question"))[:_SHOWN],
                kind="think",
                status="pending",
            )
            options = [
                schema.PermissionOption(option_id=label, name=label, kind="allow_once")
                for label in labels
            ]
            said = await self._editor.request_permission(self._session_id, call, options)
            lines.append(f"{each.get('question')}: {getattr(said.outcome, 'option_id', '-')}")
        await answer_question(self._runtime, one, "\n".join(lines))
        return True

    async def _say(self, text: str) -> None:
        update = acp.update_agent_message_text(text)
        await self._editor.session_update(self._session_id, update)


async def answer_question(runtime: Runtime, one: OpenQuestion, text: str) -> None:
    """Give a run the answer to its question."""
    await approvals.answer.perform(runtime, OWNER, one.session_id, one.call_id, text, by=_BY)


__all__ = ["Content", "PromptTurn", "answer_question"]
