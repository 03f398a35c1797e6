"""Speed and price of offline token counting and of keeping the books.

python benchmarks/tokens.py [--quick] [--json]
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from _report import Result, arguments, report

from holdfast.messages import Message, TextPart, TokenUsage
from holdfast.providers import Accountant, ModelRequest, TokenCounter, estimate_tokens

_LOAD = """
import time
from holdfast.providers import find_counter
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6
size, begun = rss(), time.process_time()
find_counter("o200k_base")("x")
print(time.process_time() - begun, rss() - size)
"""


def main() -> int:
    """Measure and print."""
    options = arguments(__doc__ or "")
    rounds = 5 if options.quick else 30
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8") * 8
    loaded = subprocess.run([sys.executable, "-c", _LOAD], capture_output=True, text=True)
    seconds, memory = map(float, loaded.stdout.split())
    counter = TokenCounter("openai", "gpt-4o")
    counter.text("x")
    messages = tuple(
        Message(id=f"m{n}", session_id="s", role="user", parts=(TextPart(text=text[:2000]),))
        for n in range(3000)
    )
    request = ModelRequest(messages=messages)
    counter.request(request)
    size = len(text.encode()) / 1e6
    results = [
        Result(metric="load o200k_base, s CPU", value=seconds),
        Result(metric="load o200k_base, MB", value=memory),
        Result(metric="exact, MB/s", value=size / _time(lambda: counter.text(text), rounds)),
        Result(metric="estimate, MB/s", value=size / _time(lambda: estimate_tokens(text), rounds)),
        Result(
            metric="short text, us",
            value=_time(lambda: counter.text("What is 15 times 23?"), rounds * 200) * 1e6,
        ),
        Result(
            metric="request of 3,000 known messages, ms",
            value=_time(lambda: counter.request(request), rounds) * 1e3,
            note="each message is counted once",
        ),
        Result(metric="book one answer, us", value=_book(rounds * 100) * 1e6),
    ]
    return report(results, options.json)


def _time(call: object, rounds: int) -> float:
    assert callable(call)
    call()
    begun = time.process_time()
    for _ in range(rounds):
        call()
    return (time.process_time() - begun) / rounds


def _book(rounds: int) -> float:
    books = Accountant()
    answers = [
        Message(
            id=f"m{n}",
            session_id="s",
            run_id="r",
            agent="a",
            role="assistant",
            provider="openai",
            model="gpt-4o",
            usage=TokenUsage(input=1000, output=100),
        )
        for n in range(rounds + 1)
    ]
    books.record(answers[0])
    begun = time.process_time()
    for answer in answers[1:]:
        books.record(answer)
    return (time.process_time() - begun) / rounds


if __name__ == "__main__":
    sys.exit(main())
