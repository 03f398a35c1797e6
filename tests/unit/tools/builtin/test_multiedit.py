import pytest

from holdfast.errors import FileMissing, PermissionDenied, TellModel, ToolInputInvalid
from holdfast.tools import Intent
from holdfast.tools.builtin.multiedit import multiedit


def one(old, new, **more):
    return {"old_string": old, "new_string": new, **more}


async def test_edits_are_made_in_order_on_the_result_so_far(call, root):
    (root / "f").write_text("a b c c")
    edits = [one("a", "x"), one("x b", "y"), one("c", "z", replace_all=True)]
    result = await call(multiedit, file_path="f", edits=edits)
    assert (root / "f").read_text() == "y z z"
    assert "-a b c c\n+y z z" in result.output


async def test_one_impossible_edit_undoes_all(call, root):
    (root / "f").write_text("a b")
    with pytest.raises(TellModel) as caught:
        await call(multiedit, file_path="f", edits=[one("a", "x"), one("nope", "y")])
    assert "Edit 2 of 2" in caught.value.text
    assert (root / "f").read_text() == "a b"


async def test_missing_file_and_outside_are_refused(call, root):
    with pytest.raises(FileMissing):
        await call(multiedit, file_path="f", edits=[one("a", "b")])
    with pytest.raises(PermissionDenied):
        await call(multiedit, file_path="/etc/passwd", edits=[one("a", "b")])


async def test_after_a_crash_the_file_tells_whether_it_happened(call, context, root):
    (root / "f").write_text("a b")
    arguments = {"file_path": "f", "edits": [one("a", "x"), one("x b", "y")]}
    noted = await multiedit.prepare(multiedit.validate(arguments), context)
    intent = Intent(
        tool="multiedit",
        version="1.0.0",
        call_id="c",
        idempotency_key="k",
        arguments=arguments,
        noted=noted,
    )
    assert (await multiedit.reconcile(intent, context)).verdict == "not_happened"
    await call(multiedit, **arguments)
    assert (await multiedit.reconcile(intent, context)).verdict == "happened"


@pytest.mark.parametrize(
    "edits",
    [
        [],
        "x",
        [{}],
        [{"old_string": "a"}],
        [one("a", "b", extra=1)],
        [one("a", "b", replace_all=1)],
    ],
)
def test_wrong_arguments_are_refused(edits):
    with pytest.raises(ToolInputInvalid):
        multiedit.validate({"file_path": "f", "edits": edits})
