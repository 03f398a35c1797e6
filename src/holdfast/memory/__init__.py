"""Remember, supersede, recall, forget.

Memories lie in a storage of their own, so that forgetting really forgets; the journal notes
only that something was stored, recalled or forgotten. Searching needs no network and no key.

A search ranks twice: first all memories, by words (BM25), vectors and conversation
(`ranking`), then the best again, by late interaction (MaxSim) and answer types (`reranking`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.memory.answer_types import ENGLISH as ENGLISH
    from holdfast.memory.answer_types import AnswerRule as AnswerRule
    from holdfast.memory.answer_types import AnswerRules as AnswerRules
    from holdfast.memory.choice import make_local_embedder as make_local_embedder
    from holdfast.memory.choice import reopen_embedder as reopen_embedder
    from holdfast.memory.choice import reopen_local_embedder as reopen_local_embedder
    from holdfast.memory.choice import reopen_remote_embedder as reopen_remote_embedder
    from holdfast.memory.embedder import EmbeddedText as EmbeddedText
    from holdfast.memory.embedder import MemoryEmbedder as MemoryEmbedder
    from holdfast.memory.embedder import NoEmbedder as NoEmbedder
    from holdfast.memory.embedder import TokenEmbedder as TokenEmbedder
    from holdfast.memory.embedder import UnreadyEmbedder as UnreadyEmbedder
    from holdfast.memory.entry import SCOPES as SCOPES
    from holdfast.memory.entry import MemoryEntry as MemoryEntry
    from holdfast.memory.entry import MemoryOptions as MemoryOptions
    from holdfast.memory.entry import MemorySummary as MemorySummary
    from holdfast.memory.entry import Provenance as Provenance
    from holdfast.memory.entry import Scope as Scope
    from holdfast.memory.entry import ScoreParts as ScoreParts
    from holdfast.memory.events import MemoryRecalled as MemoryRecalled
    from holdfast.memory.former import READY as READY
    from holdfast.memory.manager import Identity as Identity
    from holdfast.memory.manager import MemoryManager as MemoryManager
    from holdfast.memory.manager import MemoryRules as MemoryRules
    from holdfast.memory.manager import Recollection as Recollection
    from holdfast.memory.minilm import MiniLmEmbedder as MiniLmEmbedder
    from holdfast.memory.remote_vectors import RemoteEmbedder as RemoteEmbedder
    from holdfast.memory.space import VectorSpace as VectorSpace
    from holdfast.memory.static_vectors import StaticEmbedder as StaticEmbedder
    from holdfast.memory.static_vectors import make_default_embedder as make_default_embedder
    from holdfast.memory.storage import Choose as Choose
    from holdfast.memory.storage import IndexRow as IndexRow
    from holdfast.memory.storage import LexicalHit as LexicalHit
    from holdfast.memory.storage import MemoryDraft as MemoryDraft
    from holdfast.memory.storage import MemoryFilter as MemoryFilter
    from holdfast.memory.storage import MemoryPassage as MemoryPassage
    from holdfast.memory.storage import MemoryPlace as MemoryPlace
    from holdfast.memory.storage import MemoryStats as MemoryStats
    from holdfast.memory.storage import MemoryStorage as MemoryStorage
    from holdfast.memory.storage import NearestQuery as NearestQuery
    from holdfast.memory.storage import NearestStorage as NearestStorage
    from holdfast.memory.storage import Purge as Purge
    from holdfast.memory.storage import SearchLookup as SearchLookup
    from holdfast.memory.storage import Unembedded as Unembedded
    from holdfast.memory.storage import WordCounts as WordCounts
    from holdfast.memory.stores import InMemoryStorage as InMemoryStorage
    from holdfast.memory.stores import SqliteMemoryStorage as SqliteMemoryStorage
    from holdfast.memory.stores.registry import MemoryStoreKind as MemoryStoreKind
    from holdfast.memory.stores.registry import erase_memories as erase_memories
    from holdfast.memory.stores.registry import find_memory_place as find_memory_place
    from holdfast.memory.stores.registry import grant_memory_role as grant_memory_role
    from holdfast.memory.stores.registry import holds_memories as holds_memories
    from holdfast.memory.stores.registry import migrate_memory_storage as migrate_memory_storage
    from holdfast.memory.stores.registry import open_memory_storage as open_memory_storage
    from holdfast.memory.summarizer import ExtractiveSummarizer as ExtractiveSummarizer
    from holdfast.memory.summarizer import MemorySummarizer as MemorySummarizer
    from holdfast.memory.summarizer import ModelSummarizer as ModelSummarizer
    from holdfast.memory.tools import make_memory_tools as make_memory_tools
    from holdfast.memory.transfer import export_memories as export_memories
    from holdfast.memory.transfer import import_memories as import_memories
    from holdfast.memory.words import query_words as query_words
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "answer_types": "ENGLISH AnswerRule AnswerRules",
            "former": "READY",
            "choice": "reopen_local_embedder make_local_embedder reopen_embedder reopen_remote_embedder",
            "embedder": "EmbeddedText MemoryEmbedder NoEmbedder TokenEmbedder UnreadyEmbedder",
            "events": "MemoryRecalled",
            "entry": "MemoryEntry MemoryOptions MemorySummary Provenance SCOPES Scope ScoreParts",
            "manager": "Identity MemoryManager MemoryRules Recollection",
            "minilm": "MiniLmEmbedder",
            "remote_vectors": "RemoteEmbedder",
            "space": "VectorSpace",
            "static_vectors": "StaticEmbedder make_default_embedder",
            "storage": "Choose IndexRow LexicalHit MemoryDraft MemoryFilter MemoryPassage MemoryPlace "
            "MemoryStats MemoryStorage NearestQuery NearestStorage Purge SearchLookup Unembedded "
            "WordCounts",
            "stores": "InMemoryStorage SqliteMemoryStorage",
            "stores.registry": "MemoryStoreKind erase_memories find_memory_place grant_memory_role holds_memories "
            "migrate_memory_storage open_memory_storage",
            "summarizer": "ExtractiveSummarizer MemorySummarizer ModelSummarizer",
            "tools": "make_memory_tools",
            "transfer": "export_memories import_memories",
            "words": "query_words",
        },
    )
