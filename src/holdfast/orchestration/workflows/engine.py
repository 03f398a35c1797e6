"""One turn of a workflow: walks the definition and does what has not been done.

Every step that ends is a fact before the next one begins, and expressions are pure, so a
restart walks the same way again, takes what has ended as it is, and goes on with the rest.
"""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import (
    Conflict,
    Damaged,
    HoldfastError,
    Refused,
    RunInterrupted,
    StepFailed,
    StorageError,
    ToolError,
    UsageError,
    WorkflowLimit,
    make_error_from_dict,
)
from holdfast.hooks import (
    WorkflowAfterStage,
    WorkflowBeforeStage,
    WorkflowBeforeStart,
    WorkflowCheckpointReached,
    WorkflowComplete,
    WorkflowError,
    WorkflowRollback,
    WorkflowStageTransition,
)
from holdfast.journal import Payload
from holdfast.orchestration.workflows import events as facts
from holdfast.orchestration.workflows import schema
from holdfast.orchestration.workflows.definition import DEFAULT_TIMEOUT_S, Loop, WorkflowStep
from holdfast.orchestration.workflows.expressions import Names, Value, is_true, render
from holdfast.orchestration.workflows.order import Schedule, list_needs
from holdfast.orchestration.workflows.record import Record, WorkflowStepState
from holdfast.orchestration.workflows.request import WorkflowRequest, fit_inputs
from holdfast.orchestration.workflows.step_executor import (
    NestedRunner,
    StepExecutor,
    Waits,
    WorkflowCode,
    attempt_at,
)
from holdfast.runs import RunServices
from holdfast.sessions import Session
from holdfast.turns import (
    Outcome,
    Turn,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnParked,
    finish,
)

MOST_EXECUTIONS: Final = 20_000
"""Steps that one run may execute, rounds of loops counted each."""
LARGEST_OUTPUT: Final = 1024 * 1024
"""Bytes of JSON that one step may give back."""

Listener: TypeAlias = Callable[[Payload], None]
"""Hears every fact of a workflow once it is kept."""

# What concerns the records or the machine, not the step: the run stops, nothing is decided about
# it.
_NOT_THE_STEP = (Conflict, Damaged, StorageError, RunInterrupted)
_GRACE_S = 0.5
_CANCELLED = "The run was cancelled."
_NOT_MADE = "The workflow went on, or ended, without this call."


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """Where a block stands: the path around it, what it can see, and who takes its failures."""

    path: str = ""
    steps: MutableMapping[str, JsonObject] = field(default_factory=dict)
    loop: JsonObject | None = None
    ends: str = ""
    """The block that a failure inside ends; "" is the workflow."""


class _Ended(Exception):
    """A failure on its way up to the block, or the workflow, that it ends."""

    def __init__(self, error: HoldfastError, path: str, ends: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.path = path
        self.ends = ends


class WorkflowTurn:
    """A run of a workflow that holds its session."""

    def __init__(
        self,
        services: RunServices,
        turn: Turn,
        session: Session,
        order: WorkflowRequest,
        *,
        code: WorkflowCode,
        record: Record,
        nested: NestedRunner,
        listener: Listener,
    ) -> None:
        """Made by the runner, inside the session's lease."""
        self._services = services
        self._hooks = services.instrumentation.hooks
        self._turn = turn
        self._order = order
        self._definition = order.definition
        self._record = record
        self._listener = listener
        self._places = asyncio.Semaphore(order.definition.most_parallel)
        self._steps = StepExecutor(
            services, turn, session, order, code=code, record=self._append, nested=nested
        )
        self._sleep = code.sleep
        self._agent_path = self._steps.position.agent_path
        self._inputs: JsonObject = order.inputs
        self._timer: asyncio.Timeout | None = None
        self._ids = {
            "session_id": session.id,
            "run_id": turn.run.id,
            "agent": self._steps.identity.name,
        }

    async def execute(self) -> Outcome:
        """Go on until everything has ended, a caller is waited for, or asks to stop.

        However it ends, no call of a step is left without a result, unless a person is to
        answer for one.
        """
        try:
            outcome = await self._run_until_the_end()
        except asyncio.CancelledError:
            if self._turn.run.owner == self._services.turns.owner:
                # One that others left behind is not ended by this: a caller goes on with it.
                await finish(self._steps.close_calls(_CANCELLED))
            raise
        finally:
            await asyncio.shield(self._steps.close())
        if isinstance(outcome, TurnParked):
            return outcome
        because = _CANCELLED if isinstance(outcome, TurnCancelled) else _NOT_MADE
        # The caller that waits for the run may be cancelled too, as one whom the same person
        # stopped.
        if await finish(self._steps.close_calls(because)):
            raise asyncio.CancelledError
        return outcome

    async def _run_until_the_end(self) -> Outcome:
        limit = self._definition.timeout
        try:
            async with self._turn.cancelled.ending(limit) as self._timer:
                return await self._read_whole()
        except TimeoutError:
            if self._turn.cancelled.is_set():
                return TurnCancelled(reason=self._turn.cancel_reason)
            detail = f"it did not end within {limit or 0:g} s"
            late: HoldfastError = WorkflowLimit(step="the workflow", detail=detail)
            return await self._tell_failed(self._steps.make_out_of_time() or late)

    async def _read_whole(self) -> Outcome:
        record = self._record
        if isinstance(record.ended, facts.WorkflowFailed):
            return TurnFailed(error=record.ended.error)
        try:
            await self._begin()
            if "" in record.ends:
                # It had failed when it was killed: nothing is begun any more.
                known = record.ends[""]
                raise _Ended(make_error_from_dict(known.error), known.path, "")
            await self._steps.open()
            self._heed_budget()
            frame = _Frame()
            await self._block(self._definition.steps, frame)
            output = self._describe_output(frame)
        except Waits as waits:
            return TurnParked(reason=waits.reason)
        except _Ended as ended:
            return await self._tell_failed(_as_failure(ended.error, ended.path))
        except _NOT_THE_STEP:
            raise
        except HoldfastError as error:
            return await self._tell_failed(error)
        if record.ended is None:
            count = len(record.states)
            await self._append(facts.WorkflowCompleted(name=self._definition.name, steps=count))
            await self._hooks.notify(
                WorkflowComplete(workflow=self._definition.name, steps=count, **self._ids)
            )
        return TurnCompleted(result={"output": output})

    def _heed_budget(self) -> None:
        """End what is under way soon after the time of the budget is over.

        Runs and tools end by themselves then; this is for those that do not.
        """
        left = self._steps.seconds_left
        if left is None or self._timer is None:
            return
        when = asyncio.get_running_loop().time() + left + _GRACE_S
        before = self._timer.when()
        self._timer.reschedule(when if before is None else min(before, when))

    async def _begin(self) -> None:
        """Ask the hooks and note the inputs, once; a resumed run takes those of its beginning."""
        if self._record.started is not None:
            self._inputs = self._record.started.inputs
            return
        name = self._definition.name
        if self._hooks.has(WorkflowBeforeStart):
            asked = WorkflowBeforeStart(workflow=name, inputs=self._inputs, **self._ids)
            fired = await self._hooks.fire(asked)
            fired.raise_if_cancelled()
            self._inputs = fit_inputs(self._definition, fired.payload.inputs)
        await self._append(
            facts.WorkflowStarted(
                name=name,
                digest=self._definition.digest,
                steps=sum(1 for _ in self._definition.iterate_steps()),
                inputs=self._inputs,
            )
        )

    def _describe_output(self, frame: _Frame) -> Value:
        if self._definition.result is None:
            return frame.steps[self._definition.steps[-1].id]["output"]
        output = render(self._definition.result, self._list_names(frame))
        _check_size(output, "the result")
        return output

    async def _tell_failed(self, error: HoldfastError) -> Outcome:
        told = error.to_dict()
        await self._append(facts.WorkflowFailed(name=self._definition.name, error=told))
        await self._tell_error("", told, "fail")
        return TurnFailed(error=told)

    # --- blocks -----------------------------------------------------------------------

    async def _block(
        self,
        steps: Sequence[WorkflowStep],
        frame: _Frame,
        *,
        is_parallel: bool = False,
        most: int = 64,
    ) -> None:
        """Execute the steps of a block, each when what it needs has ended."""
        known = {step.id: step for step in steps}

        async def one(name: str) -> None:
            state = await self._make_step(known[name], frame)
            frame.steps[name] = state.shown

        await _drive(Schedule(list_needs(steps, is_parallel=is_parallel)), one, most)

    async def _make_step(self, step: WorkflowStep, frame: _Frame) -> WorkflowStepState:
        """Execute a step, unless it has ended before, and return how it stands."""
        path = f"{frame.path}{step.id}"
        known = self._record.states.get(path)
        if known is not None and known.has_ended:
            return known
        try:
            if path in self._record.ends:
                # A failure inside had ended it when it was killed.
                raise make_error_from_dict(self._record.ends[path].error)
            if step.when is not None and not is_true(step.when, self._list_names(frame)):
                return await self._explain_left_out(path, frame)
            if known is None and len(self._record.states) >= MOST_EXECUTIONS:
                detail = f"more than {MOST_EXECUTIONS} steps would be executed"
                raise WorkflowLimit(step=path, detail=detail, ends="workflow")
            if step.is_block:
                output = await self._run_compound(step, path, frame)
            else:
                output = await self._find_leaf(step, path, frame)
            _check_size(output, path)
        except _Ended as ended:
            if ended.ends != path:
                raise
            return await self._go_on_after(step, path, frame, ended.error)
        except _NOT_THE_STEP:
            raise
        except HoldfastError as error:
            return await self._go_on_after(step, path, frame, error)
        return await self._make_finished(step, path, frame, output)

    async def _run_compound(self, step: WorkflowStep, path: str, frame: _Frame) -> Value:
        if path not in self._record.states:
            await self._before_stage(path, step, 1)
            await self._append(facts.WorkflowStepStarted(path=path, does=step.does[:200]))
        ends = path if step.on_error == "continue" else frame.ends
        inner = _Frame(path=frame.path, steps=frame.steps, loop=frame.loop, ends=ends)
        limit = step.timeout
        try:
            async with asyncio.timeout(limit) as scope:
                if step.parallel is not None:
                    await self._block(step.parallel, inner, is_parallel=True, most=step.most or 64)
                    return {one.id: inner.steps[one.id]["output"] for one in step.parallel}
                if step.loop is not None:
                    return await self._make_loop(step, step.loop, path, inner)
                return await self._run_choice(step, inner)
        except TimeoutError:
            if not scope.expired():
                raise
            raise StepFailed(step=path, detail=f"it did not end within {limit} s") from None

    async def _run_choice(self, step: WorkflowStep, frame: _Frame) -> Value:
        holds = is_true(step.if_ or "", self._list_names(frame))
        chosen = step.then if holds else step.else_
        if not chosen:
            return None
        inner = _enter_frame(frame, frame.path, frame.loop)
        await self._block(chosen, inner)
        return inner.steps[chosen[-1].id]["output"]

    # --- loops ------------------------------------------------------------------------

    async def _make_loop(self, step: WorkflowStep, loop: Loop, path: str, frame: _Frame) -> Value:
        if loop.while_ is not None:
            return await self._run_while(step, loop, loop.while_, path, frame)
        items = self._list_items(loop, path, frame)
        outputs: list[Value] = [None] * len(items)

        async def one(name: str) -> None:
            index = int(name)
            last = outputs[index - 1] if index and loop.parallel == 1 else None
            about = {"item": items[index], "index": index, "last": last}
            outputs[index] = await self._run_round(step, path, index, about, frame)

        rounds = {str(index): () for index in range(len(items))}
        await _drive(Schedule(rounds), one, loop.parallel)
        return outputs

    def _list_items(self, loop: Loop, path: str, frame: _Frame) -> list[Value]:
        names = self._list_names(frame)
        if loop.over is not None:
            items = render(loop.over, names)
            if not isinstance(items, list | tuple):
                raise StepFailed(step=path, detail="`over` gives no list")
            count = len(items)
        else:
            count = render(loop.times, names)
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise StepFailed(step=path, detail="`times` gives no whole number")
            items = range(min(count, loop.most))
        if count > loop.most:
            detail = f"{count} rounds are more than {loop.most}, which `most` allows"
            raise WorkflowLimit(step=path, detail=detail)
        return list(items)

    async def _run_while(
        self, step: WorkflowStep, loop: Loop, condition: str, path: str, frame: _Frame
    ) -> Value:
        outputs: list[Value] = []
        while True:
            index, last = len(outputs), outputs[-1] if outputs else None
            about = {"item": None, "index": index, "last": last}
            if not is_true(condition, {**self._list_names(frame), "loop": about}):
                return outputs
            if index >= loop.most:
                detail = f"`while` still holds after {loop.most} rounds, which `most` allows"
                raise WorkflowLimit(step=path, detail=detail)
            outputs.append(await self._run_round(step, path, index, about, frame))

    async def _run_round(
        self, step: WorkflowStep, path: str, index: int, about: JsonObject, frame: _Frame
    ) -> Value:
        assert step.steps is not None
        inner = _enter_frame(frame, f"{path}[{index}]/", about)
        await self._block(step.steps, inner)
        return inner.steps[step.steps[-1].id]["output"]

    # --- steps that do something ------------------------------------------------------

    async def _find_leaf(self, step: WorkflowStep, path: str, frame: _Frame) -> Value:
        """Make attempts until one succeeds or none is left."""
        names = self._list_names(frame)
        known = self._record.states.get(path)
        number = known.attempts if known is not None else 1
        if known is not None and known.retry_at:
            number += 1
            await self._wait_until(known.retry_at)
        while True:
            try:
                return await self._attempt(step, path, number, names)
            except _NOT_THE_STEP:
                raise
            except HoldfastError as error:
                retry = step.retry
                if retry is None or number >= retry.attempts or not _is_worth_retrying(error):
                    raise
                at = self._services.clock.now() + retry.wait_after(number)
                await self._append(
                    facts.WorkflowStepFailed(
                        path=path, attempt=number, error=error.to_dict(), then="retry", retry_at=at
                    )
                )
                await self._tell_error(path, error.to_dict(), "retry")
                await self._tell_rollback(path, number, error.to_dict())
            await self._wait_until(at)
            number += 1

    async def _attempt(self, step: WorkflowStep, path: str, number: int, names: Names) -> Value:
        attempt = attempt_at(self._turn.run.id, step, path, number)
        limit = step.timeout or DEFAULT_TIMEOUT_S
        await self._before_stage(path, step, number)
        async with self._places:
            try:
                async with asyncio.timeout(limit) as scope:
                    output = await self._steps.execute(attempt, names)
            except TimeoutError:
                if not scope.expired():
                    raise
                raise StepFailed(step=path, detail=f"it did not end within {limit:g} s") from None
        return _convert(step, path, output)

    async def _wait_until(self, moment: float) -> None:
        seconds = moment - self._services.clock.now()
        if seconds > 0:
            await self._sleep(seconds)

    # --- ends of steps ----------------------------------------------------------------

    async def _explain_left_out(self, path: str, frame: _Frame) -> WorkflowStepState:
        await self._append(facts.StepSkipped(path=path), *self._make_checkpoint(path, frame))
        return await self._after_stage(path, frame)

    async def _make_finished(
        self, step: WorkflowStep, path: str, frame: _Frame, output: Value
    ) -> WorkflowStepState:
        done = facts.StepCompleted(path=path, output=output)
        await self._append(done, *self._make_checkpoint(path, frame))
        return await self._after_stage(path, frame)

    async def _go_on_after(
        self, step: WorkflowStep, path: str, frame: _Frame, error: HoldfastError
    ) -> WorkflowStepState:
        """Note a failure for good, and go on behind it if that is what the step says."""
        is_total = error.context.get("ends") == "workflow"
        then: facts.Next = "fail" if is_total or step.on_error == "fail" else "continue"
        known = self._record.states.get(path)
        failed = facts.WorkflowStepFailed(
            path=path,
            attempt=known.attempts if known is not None and known.attempts else 1,
            error=error.to_dict(),
            then=then,
            ends="" if is_total else frame.ends,
        )
        if then == "continue":
            await self._append(failed, *self._make_checkpoint(path, frame))
        else:
            await self._append(failed)
        await self._tell_error(path, failed.error, then)
        state = await self._after_stage(path, frame, is_checkpoint=then == "continue")
        if then == "fail":
            raise _Ended(error, path, failed.ends)
        return state

    def _make_checkpoint(self, path: str, frame: _Frame) -> tuple[Payload, ...]:
        if not self._is_outermost(path):
            return ()
        done, total = self._record.done + 1, len(self._definition.steps)
        return (facts.WorkflowCheckpoint(after=path, done=done, total=total),)

    def _is_outermost(self, path: str) -> bool:
        return any(step.id == path for step in self._definition.steps)

    # --- telling ----------------------------------------------------------------------

    async def _before_stage(self, path: str, step: WorkflowStep, number: int) -> None:
        if self._hooks.has(WorkflowBeforeStage):
            asked = WorkflowBeforeStage(
                workflow=self._definition.name,
                stage=path,
                does=step.does,
                attempt=number,
                **self._ids,
            )
            (await self._hooks.fire(asked)).raise_if_cancelled()

    async def _after_stage(
        self, path: str, frame: _Frame, *, is_checkpoint: bool = True
    ) -> WorkflowStepState:
        state = self._record.states[path]
        if self._hooks.has(WorkflowAfterStage, WorkflowCheckpointReached, WorkflowStageTransition):
            name = self._definition.name
            await self._hooks.notify(
                WorkflowAfterStage(workflow=name, stage=path, status=state.status, **self._ids)
            )
            if self._is_outermost(path):
                states = self._record.states
                left = [one.id for one in self._definition.steps if one.id not in states]
                await self._hooks.notify(
                    WorkflowStageTransition(
                        workflow=name,
                        stage=path,
                        status=state.status,
                        following=tuple(left),
                        **self._ids,
                    )
                )
            if is_checkpoint and self._is_outermost(path):
                done, total = self._record.done, len(self._definition.steps)
                await self._hooks.notify(
                    WorkflowCheckpointReached(
                        workflow=name, after=path, done=done, total=total, **self._ids
                    )
                )
        return state

    async def _tell_error(self, path: str, error: JsonObject, then: str) -> None:
        if self._hooks.has(WorkflowError):
            await self._hooks.notify(
                WorkflowError(
                    workflow=self._definition.name, stage=path, error=error, then=then, **self._ids
                )
            )

    async def _tell_rollback(self, path: str, attempt: int, error: JsonObject) -> None:
        if self._hooks.has(WorkflowRollback):
            name = self._definition.name
            await self._hooks.notify(
                WorkflowRollback(
                    workflow=name, stage=path, attempt=attempt, error=error, **self._ids
                )
            )

    async def _append(self, *payloads: Payload) -> None:
        events = await self._turn.append(*payloads, agent_path=self._agent_path)
        for event, fact in zip(events, payloads, strict=True):
            if fact.kind in facts.WORKFLOW_KINDS:
                self._record.note(fact, event.time)
                self._listener(fact)

    def _list_names(self, frame: _Frame) -> Names:
        names: dict[str, Any] = {"inputs": self._inputs, "steps": frame.steps}
        if frame.loop is not None:
            names["loop"] = frame.loop
        return names


async def _drive(schedule: Schedule, one: Callable[[str], Awaitable[None]], most: int) -> None:
    """Execute what a schedule allows, several at a time, until all has ended.

    The first failure ends the others. What waits for a person rests; the rest goes on, and
    then `Waits` is raised.
    """
    waits: Waits | None = None
    running: dict[asyncio.Task[None], str] = {}
    try:
        while not schedule.is_over:
            taken = schedule.take(most - len(running))
            if len(taken) == 1 and not running:
                # Nothing else can begin meanwhile: no task is needed.
                await one(taken[0])
                schedule.end(taken[0])
                continue
            for name in taken:
                running[asyncio.create_task(_call(one, name))] = name
            if not running:
                break
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                try:
                    task.result()
                except Waits as found:
                    waits = waits or found
                    schedule.stop(running.pop(task))
                else:
                    schedule.end(running.pop(task))
    finally:
        for task in running:
            task.cancel()
        if running:
            await asyncio.gather(*running, return_exceptions=True)
    if waits is not None:
        raise waits


async def _call(one: Callable[[str], Awaitable[None]], name: str) -> None:
    await one(name)


def _enter_frame(frame: _Frame, path: str, loop: JsonObject | None) -> _Frame:
    """Return a frame whose steps cannot be seen from outside."""
    return _Frame(path=path, steps=ChainMap({}, frame.steps), loop=loop, ends=frame.ends)


def _convert(step: WorkflowStep, path: str, output: Value) -> Value:
    """Return an output as what the step promises; a text that must be more is read as JSON."""
    if step.output is None:
        return output
    wanted = step.output.get("type", "object")
    if isinstance(output, str) and wanted != "string":
        try:
            output = msgspec.json.decode(output)
        except (msgspec.DecodeError, RecursionError):
            raise StepFailed(step=path, detail="its output is no JSON") from None
    wrong = schema.list_mistakes(output, step.output, "its output")
    if wrong:
        raise StepFailed(step=path, detail="; ".join(wrong))
    return output


def _check_size(output: Value, path: str) -> None:
    try:
        size = len(msgspec.json.encode(output))
    except (TypeError, ValueError, RecursionError) as error:
        raise StepFailed(step=path, detail=f"its output is no JSON: {error}") from error
    if size > LARGEST_OUTPUT:
        detail = f"its output has {size} bytes, more than {LARGEST_OUTPUT}"
        raise WorkflowLimit(step=path, detail=detail)


def _is_worth_retrying(error: HoldfastError) -> bool:
    """A refusal or a mistake of the developer's stays what it is, however often it is tried."""
    return not isinstance(error, Refused | UsageError) or isinstance(error, ToolError)


def _as_failure(error: HoldfastError, path: str) -> HoldfastError:
    """Return the workflow's error: the step's own where it names the step, else around it."""
    if isinstance(error, StepFailed | WorkflowLimit):
        return error
    return StepFailed(step=path, detail=str(error), cause=error.to_dict())


__all__ = ["LARGEST_OUTPUT", "MOST_EXECUTIONS", "Listener", "WorkflowTurn"]
