import msgspec
import pytest

from holdfast.errors import ToolError, ToolInputInvalid
from holdfast.tools import Parked
from holdfast.tools.builtin.question import make_answered_result, question
from holdfast.tools.services import Question

QUESTIONS = [
    {"question": "Which?", "header": "Choice", "options": [{"label": "A"}, {"label": "B"}]},
    {"question": "Why?"},
]


class Person:
    def __init__(self, answers):
        self.answers = answers
        self.asked = ()

    async def ask(self, questions):
        self.asked = questions
        return self.answers


async def test_person_who_attends_is_asked(context):
    person = Person((("B",), ("because",)))
    attended = msgspec.structs.replace(context, attendant=person)
    result = await question.call(question.validate({"questions": QUESTIONS}), attended)
    assert result.output == "Which?\n  B\nWhy?\n  because"
    assert result.metadata["answers"] == [["B"], ["because"]]
    assert [option.label for option in person.asked[0].options] == ["A", "B"]


async def test_nobody_there_parks_the_call(call):
    result = await call(question, questions=QUESTIONS)
    assert isinstance(result, Parked)
    assert result.reason == "question"
    assert [one["question"] for one in result.request["questions"]] == ["Which?", "Why?"]


def test_answers_must_fit_the_questions():
    with pytest.raises(ToolError):
        make_answered_result((Question(question="a"),), ())
    assert "(no answer)" in make_answered_result((Question(question="a"),), ((),)).output


@pytest.mark.parametrize("questions", [[], [{}], [{"question": ""}], "x"])
def test_wrong_arguments_are_refused(questions):
    with pytest.raises(ToolInputInvalid):
        question.validate({"questions": questions})
