"""Remember, supersede, recall, forget.

Memories lie in a storage of their own, so that forgetting really forgets; the journal notes
only that something was stored, recalled or forgotten. Searching needs no network and no key.

A search ranks twice: first all memories, by words (BM25), vectors and conversation
(`ranking`), then the best again, by late interaction (MaxSim) and answer types (`reranking`).
"""

from holdfast.memory.choice import local_again, local_embedder, made_again, remote_again
from holdfast.memory.embedder import (
    EmbeddedText,
    MemoryEmbedder,
    NoEmbedder,
    TokenEmbedder,
    UnreadyEmbedder,
)
from holdfast.memory.entry import (
    SCOPES,
    MemoryEntry,
    MemoryOptions,
    MemorySummary,
    Provenance,
    Scope,
    ScoreParts,
)
from holdfast.memory.manager import (
    Identity,
    MemoryManager,
    MemoryRules,
    Recollection,
)
from holdfast.memory.minilm import MiniLmEmbedder
from holdfast.memory.remote_vectors import RemoteEmbedder
from holdfast.memory.space import VectorSpace
from holdfast.memory.static_vectors import StaticEmbedder, default_embedder
from holdfast.memory.storage import MemoryFilter, MemoryStats, MemoryStorage
from holdfast.memory.stores import InMemoryStorage, SqliteMemoryStorage
from holdfast.memory.summarizer import (
    ExtractiveSummarizer,
    MemorySummarizer,
    ModelSummarizer,
)
from holdfast.memory.tools import memory_tools
from holdfast.memory.transfer import export_memories, import_memories

__all__ = [
    "SCOPES",
    "EmbeddedText",
    "ExtractiveSummarizer",
    "Identity",
    "InMemoryStorage",
    "MemoryEmbedder",
    "MemoryEntry",
    "MemoryFilter",
    "MemoryManager",
    "MemoryOptions",
    "MemoryRules",
    "MemoryStats",
    "MemoryStorage",
    "MemorySummarizer",
    "MemorySummary",
    "MiniLmEmbedder",
    "ModelSummarizer",
    "NoEmbedder",
    "Provenance",
    "Recollection",
    "RemoteEmbedder",
    "Scope",
    "ScoreParts",
    "SqliteMemoryStorage",
    "StaticEmbedder",
    "TokenEmbedder",
    "UnreadyEmbedder",
    "VectorSpace",
    "default_embedder",
    "export_memories",
    "import_memories",
    "local_again",
    "local_embedder",
    "made_again",
    "memory_tools",
    "remote_again",
]
