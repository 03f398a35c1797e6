"""Holdfast as the server under test: what the official MCP conformance suite asks a server for.

The tools, resources and prompts are those that the suite names; all of them are made of what any
application has: `@tool`, `find_peer`, `McpContent`. Listens on 127.0.0.1, on the given port.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter

from holdfast import tool
from holdfast.errors import TellModel
from holdfast.messages import FilePart
from holdfast.operations import OWNER, Caller
from holdfast.server import create_app
from holdfast.server.identity import RequestHead
from holdfast.server.mcp import McpContent, McpPrompt, McpResource, offer_content
from holdfast.server.mcp.peer import McpPeer
from holdfast.server.process import make_server
from holdfast.settings import load_settings
from holdfast.tools import (
    Peer,
    Signature,
    Tool,
    ToolContext,
    ToolResult,
    ask_folders,
    ask_form,
    ask_model,
    find_peer,
)

PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV: Final = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")
NAME: Final = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
OK: Final = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


def field(kind: str, **more: Any) -> dict[str, Any]:
    """Return a field of a form."""
    return {"type": kind, **more}


def form(**fields: dict[str, Any]) -> dict[str, Any]:
    """Return a form."""
    return {"type": "object", "properties": fields}


# --- content --------------------------------------------------------------------------


@tool(effect="read")
async def test_simple_text() -> str:
    """Say something."""
    return "This is a simple text response for testing."


@tool(effect="read")
async def test_image_content() -> ToolResult:
    """Show a picture."""
    return ToolResult("", attachments=(FilePart(media_type="image/png", data=PNG),))


@tool(effect="read")
async def test_audio_content() -> ToolResult:
    """Play a sound."""
    return ToolResult("", attachments=(FilePart(media_type="audio/wav", data=WAV),))


@tool(effect="read")
async def test_embedded_resource() -> ToolResult:
    """Give a file along."""
    text = b"This is an embedded resource content."
    file = FilePart(media_type="text/plain", data=text, name="embedded.txt")
    return ToolResult("", attachments=(file,))


@tool(effect="read")
async def test_multiple_content_types() -> ToolResult:
    """Give a text, a picture and a file."""
    data = b'{"test":"data","value":123}'
    files = (
        FilePart(media_type="image/png", data=PNG),
        FilePart(media_type="application/json", data=data, name="mixed.json"),
    )
    return ToolResult("Multiple content types test:", attachments=files)


@tool(effect="read")
async def test_error_handling() -> str:
    """Fail."""
    raise TellModel("This tool intentionally returns an error for testing")


@tool(effect="read")
async def test_tool_with_logging(context: ToolContext) -> str:
    """Write three lines to the client's log."""
    peer = find_peer(context)
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await peer.log("info", line)
        await asyncio.sleep(0.05)
    return "Tool with logging executed successfully"


@tool(effect="read")
async def test_tool_with_progress(context: ToolContext) -> str:
    """Say three times how far it is."""
    for done in (0, 50, 100):
        context.report(f"Completed step {done} of 100", fraction=done / 100)
        await asyncio.sleep(0.05)
    return "Tool with progress executed successfully"


# --- asking the client ----------------------------------------------------------------


@tool(effect="idempotent")
async def test_sampling(prompt: str, context: ToolContext) -> str:
    """Ask the client's model."""
    said = await find_peer(context).ask({"answer": ask_model(prompt, max_tokens=100)})
    return f"LLM response: {said['answer']['content']['text']}"


async def ask_person(context: ToolContext, message: str, schema: dict[str, Any]) -> str:
    """Return what a person fills in, as text."""
    said = (await find_peer(context).ask({"form": ask_form(message, schema)}))["form"]
    return f"action={said['action']}, content={said.get('content', {})}"


@tool(effect="idempotent")
async def test_elicitation(message: str, context: ToolContext) -> str:
    """Ask the person behind the client."""
    schema = form(
        username=field("string", description="User's response"),
        email=field("string", description="User's email address"),
    )
    told = await ask_person(context, message, schema | {"required": ["username", "email"]})
    return f"User response: {told}"


@tool(effect="idempotent")
async def test_elicitation_sep1034_defaults(context: ToolContext) -> str:
    """Ask with a default for each kind of field."""
    schema = form(
        name=field("string", default="John Doe"),
        age=field("integer", default=30),
        score=field("number", default=95.5),
        status=field("string", enum=["active", "inactive", "pending"], default="active"),
        verified=field("boolean", default=True),
    )
    return f"Elicitation completed: {await ask_person(context, 'Please review', schema)}"


@tool(effect="idempotent")
async def test_elicitation_sep1330_enums(context: ToolContext) -> str:
    """Ask with each kind of choice."""
    titled = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
    plain = ["option1", "option2", "option3"]
    schema = form(
        untitledSingle=field("string", enum=plain),
        titledSingle=field("string", oneOf=titled),
        legacyEnum=field(
            "string",
            enum=["opt1", "opt2", "opt3"],
            enumNames=["Option One", "Option Two", "Option Three"],
        ),
        untitledMulti=field("array", items={"type": "string", "enum": plain}),
        titledMulti=field("array", items={"anyOf": titled}),
    )
    return f"Elicitation completed: {await ask_person(context, 'Please choose', schema)}"


@tool(effect="idempotent")
async def test_missing_capability(context: ToolContext) -> str:
    """Need the client's model."""
    said = await find_peer(context).ask({"answer": ask_model("Hello", max_tokens=10)})
    return str(said["answer"]["content"]["text"])


@tool(effect="idempotent")
async def test_input_required_result_elicitation(context: ToolContext) -> str:
    """Ask for a name."""
    said = await find_peer(context).ask({"user_name": ask_form("What is your name?", NAME)})
    return f"Hello, {said['user_name'].get('content', {}).get('name', 'stranger')}!"


@tool(effect="idempotent")
async def test_input_required_result_sampling(context: ToolContext) -> str:
    """Ask the client's model for a capital."""
    asked = ask_model("What is the capital of France?", max_tokens=100)
    said = await find_peer(context).ask({"capital_question": asked})
    return str(said["capital_question"]["content"]["text"])


@tool(effect="idempotent")
async def test_input_required_result_list_roots(context: ToolContext) -> str:
    """Ask for the client's folders."""
    said = await find_peer(context).ask({"client_roots": ask_folders()})
    return ", ".join(str(one["uri"]) for one in said["client_roots"]["roots"])


@tool(effect="idempotent")
async def test_input_required_result_request_state(context: ToolContext) -> str:
    """Ask, and know the client again."""
    await find_peer(context).ask({"confirm": ask_form("Please confirm", OK)})
    return "state-ok"


@tool(effect="idempotent")
async def test_input_required_result_tampered_state(context: ToolContext) -> str:
    """Ask, and notice a state that is not ours."""
    await find_peer(context).ask({"confirm": ask_form("Please confirm", OK)})
    return "state-ok"


@tool(effect="idempotent")
async def test_input_required_result_multiple_inputs(context: ToolContext) -> str:
    """Ask for three things at once."""
    said = await find_peer(context).ask(
        {
            "user_name": ask_form("What is your name?", NAME),
            "greeting": ask_model("Generate a greeting", max_tokens=50),
            "client_roots": ask_folders(),
        }
    )
    name = said["user_name"].get("content", {}).get("name")
    return f"{said['greeting']['content']['text']} {name}, {len(said['client_roots']['roots'])}"


@tool(effect="idempotent")
async def test_input_required_result_multi_round(context: ToolContext) -> str:
    """Ask twice, one after the other."""
    first = await find_peer(context).ask({"step1": ask_form("Step 1: What is your name?", NAME)})
    color = form(color=field("string")) | {"required": ["color"]}
    second = await find_peer(context).ask({"step2": ask_form("Step 2: What is your color?", color)})
    return f"{first['step1'].get('content')} {second['step2'].get('content')}"


@tool(effect="idempotent")
async def test_input_required_result_capabilities(context: ToolContext) -> str:
    """Ask only for what the client says it can do."""
    peer = find_peer(context)
    asked = {}
    if "form" in peer.can:
        asked["user_name"] = ask_form("What is your name?", NAME)
    if "model" in peer.can:
        asked["greeting"] = ask_model("Generate a greeting", max_tokens=50)
    await peer.ask(asked)
    return "done"


@tool(effect="idempotent")
async def test_streaming_elicitation(context: ToolContext) -> str:
    """Ask in the midst of a call."""
    await find_peer(context).ask({"user_name": ask_form("What is your name?", NAME)})
    return "done"


@tool(effect="read")
async def test_logging_tool(context: ToolContext) -> str:
    """Write a line to the client's log."""
    await find_peer(context).log("info", "a line")
    return "done"


@tool(effect="read")
async def test_reconnection(context: ToolContext) -> str:
    """Let the client come back for the result."""
    peer = find_peer(context)
    if isinstance(peer, McpPeer):
        await peer.let_go()
    await asyncio.sleep(0.1)
    return "Reconnection test completed"


@tool(effect="read")
async def test_custom_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "",
) -> str:
    """Take an argument that a header repeats."""
    return region


@tool(effect="read")
async def greet(name: str = "you") -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@tool(effect="read", timeout_s=60)
async def slow_compute(seconds: float = 0) -> str:
    """Take some time."""
    await asyncio.sleep(min(seconds, 30))
    return f"Computed for {seconds} s"


@tool(effect="read")
async def failing_job() -> str:
    """Fail."""
    raise TellModel("This job fails")


@tool(effect="idempotent")
async def confirm_delete(context: ToolContext, filename: str = "") -> str:
    """Ask before it would delete something."""
    said = await find_peer(context).ask({"confirm": ask_form(f"Delete {filename}?", OK)})
    return str(said["confirm"]["action"])


@tool(effect="idempotent")
async def test_trigger_tool_change() -> str:
    """Say that there are other tools now."""
    CONTENT.tell_list_changed("tools")
    return "done"


@tool(effect="idempotent")
async def test_trigger_prompt_change() -> str:
    """Offer one more prompt."""
    CONTENT.add_prompt(McpPrompt(name="late", description="Came later", write=lambda: "Late."))
    return "done"


# --- resources and prompts ------------------------------------------------------------


async def write_with_input(peer: Peer) -> str:
    """Ask for the context of a prompt first."""
    schema = form(context=field("string")) | {"required": ["context"]}
    asked = ask_form("What context should the prompt use?", schema)
    said = await peer.ask({"user_context": asked})
    return f"Use this context: {said['user_context'].get('content')}"


def block(**content: Any) -> dict[str, Any]:
    """Return a message of a prompt."""
    return {"role": "user", "content": content}


def write_with_file(resourceUri: str) -> list[dict[str, Any]]:
    """Put a resource into a prompt."""
    text = "Embedded resource content for testing."
    resource = {"uri": resourceUri, "mimeType": "text/plain", "text": text}
    return [
        block(type="resource", resource=resource),
        block(type="text", text="Please process the embedded resource above."),
    ]


def write_with_image() -> list[dict[str, Any]]:
    """Put a picture into a prompt."""
    data = base64.b64encode(PNG).decode()
    return [
        block(type="image", data=data, mimeType="image/png"),
        block(type="text", text="Please analyze the image above."),
    ]


CONTENT: Final = McpContent(
    resources=[
        McpResource(
            uri="test://static-text",
            name="Static text",
            description="A text that stays",
            read=lambda: "This is the content of the static text resource.",
        ),
        McpResource(
            uri="test://static-binary",
            name="Static binary",
            description="A picture that stays",
            media_type="image/png",
            read=lambda: PNG,
        ),
        McpResource(
            uri="test://watched-resource",
            name="Watched",
            description="Something that can be watched",
            read=lambda: "Watched resource content",
        ),
        McpResource(
            uri="test://template/{id}/data",
            name="Template",
            description="Data by id",
            media_type="application/json",
            read=lambda id: f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}',
        ),
    ],
    prompts=[
        McpPrompt(
            name="test_simple_prompt",
            description="A simple prompt",
            write=lambda: "This is a simple prompt for testing.",
        ),
        McpPrompt(
            name="test_prompt_with_arguments",
            description="A prompt with arguments",
            required=("arg1", "arg2"),
            write=lambda arg1, arg2: f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'",
            complete=lambda _name, typed: [
                one for one in ("paris", "park") if one[: len(typed)] == typed
            ],
        ),
        McpPrompt(
            name="test_prompt_with_embedded_resource",
            description="A prompt with a resource",
            required=("resourceUri",),
            write=write_with_file,
        ),
        McpPrompt(
            name="test_prompt_with_image", description="With a picture", write=write_with_image
        ),
        McpPrompt(
            name="test_input_required_result_prompt",
            description="A prompt that asks first",
            write=write_with_input,
        ),
    ],
)


class Everybody:
    """Lets anyone in as the owner: the suite has no key to show, and the server is on loopback."""

    async def authenticate(self, request: RequestHead) -> Caller:
        """Return the owner."""
        return OWNER


def make_schema_tool() -> Tool:
    """Return a tool whose arguments are described by a schema of our own writing."""
    address = {"street": field("string"), "city": field("string")}
    choice = {"const": "phone"}
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "addressDef", **form(**address)}},
        "properties": {
            "name": field("string"),
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": field("string", enum=["phone", "email"]),
            "phone": field("string"),
            "email": field("string"),
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": choice}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }

    async def function(**values: Any) -> str:
        return str(sorted(values))

    signature = Signature(
        purpose="Take a contact",
        parameters=schema,
        output={},
        context_parameter="",
        adapter=TypeAdapter(dict[str, Any]),
    )
    return Tool(
        name="json_schema_2020_12_tool",
        function=function,
        signature=signature,
        description="Take a contact",
        effect="read",
    )


async def serve(port: int) -> None:
    """Serve until the process is ended."""
    found = [one for one in globals().values() if isinstance(one, Tool)]
    found.append(make_schema_tool())
    with tempfile.TemporaryDirectory() as folder:
        overrides = {
            "storage.state_dir": f"{folder}/state",
            "workspace": folder,
            "server.port": port,
        }
        settings = load_settings(overrides=overrides, cwd=Path(folder)).settings
        app = create_app(settings, authenticator=Everybody())
        offer_content(app, CONTENT)
        for one in found:
            app.runtimes.operator.toolbox.registry.register(one)
        await make_server(app)._serve()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
