"""Run a program in a filtered sandbox; prints what it reached. Started by `test_filtered`."""

from __future__ import annotations

import asyncio
import sys

from holdfast.sandbox import SandboxOptions, SandboxRunner, Workspace

PROGRAM = ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/3128; read -r line <&3; echo $line"]
OUTSIDE = ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/{port}"]


async def main(level: str, folder: str) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"filtered {level}\n".encode())
        writer.close()

    outside = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = outside.sockets[0].getsockname()[1]

    async def serve(listener):  # type: ignore[no-untyped-def]
        server = await asyncio.start_server(answer, sock=listener)

        class Serving:
            async def aclose(self) -> None:
                server.close()

        return Serving()

    options = SandboxOptions(profile="filtered", level=level, egress=serve)  # type: ignore[arg-type]
    runner = SandboxRunner(Workspace(folder), options)
    try:
        tried = await runner.run_argv([one.format(port=port) for one in OUTSIDE])
        assert tried.exit_code != 0, "the machine was reached"
        sys.stdout.write((await runner.run_argv(PROGRAM)).stdout)
    finally:
        await runner.aclose()
        outside.close()


asyncio.run(main(*sys.argv[1:]))
