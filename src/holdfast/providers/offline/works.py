"""Kinds of work, each with the words that speak of it and the steps that it takes."""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.providers.lazy_patterns import compile_on_use


class StepTemplate(NamedTuple):
    """A step of a kind of work; `{goal}`, `{title}`, `{where}` and `{target}` are filled in."""

    title: str
    detail: str
    makes: str
    check: str
    makes_target: bool = False


class Work(NamedTuple):
    """A kind of work: the words that speak of it, and its steps."""

    words: re.Pattern[str]
    steps: tuple[StepTemplate, ...]


def _work(words: str, *steps: StepTemplate) -> Work:
    return Work(compile_on_use(rf"\b(?:{words})\b", re.IGNORECASE), steps)


_DONE_MEANS = StepTemplate(
    "Say what done means",
    "Write down what must hold in the end: {goal}.",
    "a short list of what must hold",
    "each line of the list can be answered with yes or no",
)
WORKS: tuple[Work, ...] = (
    _work(
        r"fix(?:ing|es)?|repair(?:ing)?|debug(?:ging)?|solv(?:e|ing)|resolv(?:e|ing)|mend(?:ing)?|"
        r"correct(?:ing)?|diagnos(?:e|ing)|bugs?|crash(?:es)?",
        StepTemplate(
            "Show the fault",
            "Find the shortest way to show the fault: {goal}. A test that fails is best.",
            "a command or a test that fails because of the fault",
            "it fails before the change, and for the reported reason",
        ),
        StepTemplate(
            "Find the cause",
            "Follow the fault from where it shows to where it begins{where}.",
            "the file and the line, and why it goes wrong there",
            "the cause explains everything that the step before has shown",
        ),
        StepTemplate(
            "Mend the cause",
            "Change what is wrong, and no more: {goal}.",
            "a small change, with the test that failed kept beside it",
            "what failed before now passes",
        ),
    ),
    _work(
        r"remov(?:e|ing|al)|delet(?:e|ing)|drop(?:ping)?|get rid of|getting rid of",
        StepTemplate(
            "Find what depends on it",
            "Search for every use of what is to go{where}: {goal}.",
            "a list of all places, each with what takes its place",
            "a search shows no place that is not on the list",
        ),
        StepTemplate(
            "{title}",
            "First take away the uses, then the thing itself: {goal}.",
            "the change, without leftovers",
            "a search for the name finds nothing any more",
        ),
    ),
    _work(
        r"(?:unit |integration )?tests?|testing|coverage",
        StepTemplate(
            "Choose what to test",
            "List what must hold and what may go wrong{where}: {goal}.",
            "a list of cases: the usual, the edges, and what must be refused",
            "each case says what goes in and what must come out",
        ),
        StepTemplate(
            "{title}",
            "Write one test for each case: {goal}.",
            "the tests, each named after what it proves",
            "all of them pass",
        ),
        StepTemplate(
            "See them fail",
            "Break the tested code on purpose, once for each test, and put it back.",
            "a note of which test noticed which break",
            "each test fails when what it protects is broken",
        ),
    ),
    _work(
        r"documentation|document(?:ing)?|docs?|readme(?:\.\w+)?|changelog|tutorial|guide|manual",
        StepTemplate(
            "Gather what its reader needs",
            "Collect what it is, how to install, use and check it{where}.",
            "notes, each with the file that it comes from",
            "every statement names its file",
        ),
        StepTemplate(
            "{title}",
            "Write the shortest text that a newcomer can follow: {goal}.",
            "{target}",
            "every point of the notes is in it, and nothing else",
            makes_target=True,
        ),
        StepTemplate(
            "Try what it says",
            "Run every command of the text as a newcomer would, in a fresh copy.",
            "the text, corrected where it did not hold",
            "every command in it ended without an error",
        ),
    ),
    _work(
        r"refactor(?:ing)?|restructur(?:e|ing)|renam(?:e|ing)|mov(?:e|ing)|split(?:ting)?|"
        r"simplify(?:ing)?|extract(?:ing)?|migrat(?:e|ing|ion)|upgrad(?:e|ing)|port(?:ing)?|"
        r"convert(?:ing)?|replac(?:e|ing)|switch(?:ing)?|rewrit(?:e|ing)|updat(?:e|ing)",
        StepTemplate(
            "Hold fast what must stay",
            "Run the tests before anything changes, and add some for what must stay: {goal}.",
            "tests that describe what must not change",
            "they pass before the first change",
        ),
        StepTemplate(
            "Cut the work into small changes",
            "List changes that can be made and undone one by one{where}.",
            "the changes in their order, each with the files that it touches",
            "after each of them everything would still run",
        ),
        StepTemplate(
            "{title}",
            "Make one change at a time: {goal}.",
            "the changed files",
            "the tests of the first step pass after each change",
        ),
    ),
    _work(
        r"releas(?:e|ing)|deploy(?:ing|ment)?|publish(?:ing)?|ship(?:ping)?|roll(?:ing)? ?out",
        StepTemplate(
            "See that it is ready",
            "Compare version, change notes and checks with what is to go out: {goal}.",
            "a list of what is ready and what is missing",
            "nothing on it is missing any more",
        ),
        StepTemplate(
            "Prepare the way back",
            "Write down how it is undone, and try that once.",
            "the command that brings back what was there before",
            "it was run once and worked",
        ),
        StepTemplate(
            "{title}",
            "Begin where few are hurt: {goal}.",
            "the new version, in use",
            "what answers says the new version",
        ),
        StepTemplate(
            "Watch it",
            "Compare errors and speed with those before.",
            "a note with the figures before and after",
            "no figure is worse, or the way back was taken",
        ),
    ),
    _work(
        r"describ(?:e|ing)|understand(?:ing)?|explain(?:ing)?|review(?:ing)?|audit(?:ing)?|"
        r"analy[sz](?:e|ing)|learn(?:ing)?|compar(?:e|ing)|evaluat(?:e|ing)|research(?:ing)?|"
        r"find(?:ing)?|measur(?:e|ing)|explor(?:e|ing)|investigat(?:e|ing)|summari[sz](?:e|ing)",
        StepTemplate(
            "Write down the questions",
            "Say what must be known in the end: {goal}.",
            "a short list of questions",
            "each can be answered from something that can be shown",
        ),
        StepTemplate(
            "Gather what can be shown",
            "Look for each answer in files, in figures and by trying{where}.",
            "for each question what was found, and where",
            "every finding names its source",
        ),
        StepTemplate(
            "Write the answer",
            "Answer the questions, and say what stays open: {goal}.",
            "the answer",
            "every question is answered or named as open",
        ),
    ),
    _work(
        r"add(?:ing)?|writ(?:e|ing)|creat(?:e|ing)|mak(?:e|ing)|build(?:ing)?|implement(?:ing)?|"
        r"introduc(?:e|ing)|develop(?:ing)?|set(?:ting)? up|configur(?:e|ing)|install(?:ing)?|"
        r"generat(?:e|ing)|design(?:ing)?|support(?:ing)?|improv(?:e|ing)|optimi[sz](?:e|ing)|"
        r"speed(?:ing)? up|integrat(?:e|ing)|clean(?:ing)?|chang(?:e|ing)|merg(?:e|ing)",
        _DONE_MEANS,
        StepTemplate(
            "{title}",
            "Begin with the smallest part that can be tried{where}: {goal}.",
            "{target}",
            "every line of the list of what must hold is answered with yes",
            makes_target=True,
        ),
    ),
)
ANYTHING: tuple[StepTemplate, ...] = (
    _DONE_MEANS,
    StepTemplate(
        "Find out what it takes",
        "List the tasks, what each needs, and what may go wrong: {goal}.",
        "the tasks in their order, with the risks",
        "no task waits for something that is not on the list",
    ),
    StepTemplate(
        "{title}",
        "Do the tasks in their order: {goal}.",
        "the result of each task",
        "a task counts as done only when its result can be shown",
    ),
)
