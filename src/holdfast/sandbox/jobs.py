"""What is run: parsed commands, and the job that the launcher reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec


class RedirectionLike(Protocol):
    """One descriptor of a program, connected to a file or to another descriptor."""

    @property
    def fd(self) -> int:
        """The descriptor."""
        ...

    @property
    def mode(self) -> str:
        """`read`, `write`, `append` or `duplicate`."""
        ...

    @property
    def path(self) -> str:
        """The file, relative to where the program runs."""
        ...

    @property
    def source_fd(self) -> int:
        """For `duplicate`: the other descriptor."""
        ...


class CommandLike(Protocol):
    """One program with exactly the arguments that it gets."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments."""
        ...

    @property
    def assignments(self) -> tuple[tuple[str, str], ...]:
        """Variables for this program only."""
        ...

    @property
    def redirections(self) -> Sequence[RedirectionLike]:
        """Where its descriptors go."""
        ...


class PipelineLike(Protocol):
    """Programs that feed each other."""

    @property
    def commands(self) -> Sequence[CommandLike]:
        """The programs, in order."""
        ...

    @property
    def connector(self) -> str:
        """`;`, `&&` or `||`: when to start."""
        ...


class JobRedirection(msgspec.Struct, frozen=True):
    """One descriptor, as the launcher reads it."""

    fd: int
    mode: str
    path: str
    source_fd: int


class JobProgram(msgspec.Struct, frozen=True):
    """One program with its own environment."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    redirections: list[JobRedirection]


class JobStage(msgspec.Struct, frozen=True):
    """Programs that feed each other, and what connects them to the ones before."""

    connector: str
    commands: list[JobProgram]


class Job(msgspec.Struct, frozen=True):
    """All that the launcher is to run in one go."""

    directory: str
    pipelines: list[JobStage]
    has_input: bool = False


def make_stage(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> JobStage:
    """Return the stage of one program alone."""
    return JobStage(";", [JobProgram(tuple(argv), dict(environment or {}), [])])


def make_stages(pipelines: Sequence[PipelineLike]) -> list[JobStage]:
    """Return what the launcher reads of parsed pipelines."""
    return [
        JobStage(pipeline.connector, [_make_program(one) for one in pipeline.commands])
        for pipeline in pipelines
    ]


def encode_job(
    stages: Sequence[JobStage],
    directory: str,
    environment: Mapping[str, str],
    *,
    has_input: bool = False,
) -> bytes:
    """Return a job as the launcher reads it; each program gets `environment` below its own."""
    placed = [
        JobStage(
            stage.connector,
            [
                JobProgram(one.argv, {**environment, **one.environment}, one.redirections)
                for one in stage.commands
            ],
        )
        for stage in stages
    ]
    return msgspec.json.encode(Job(directory, placed, has_input))


def needs_files(stages: Sequence[JobStage]) -> bool:
    """Say whether the launcher will ask for files to be opened, or directories entered."""
    return any(
        one.argv[0] == "cd" or any(target.mode != "duplicate" for target in one.redirections)
        for stage in stages
        for one in stage.commands
    )


def _make_program(command: CommandLike) -> JobProgram:
    redirections = [
        JobRedirection(one.fd, one.mode, one.path, one.source_fd) for one in command.redirections
    ]
    return JobProgram(command.argv, dict(command.assignments), redirections)
