"""What a run needs of disks, from its run file alone."""

from __future__ import annotations

from crosstrain.config import ModelSection, RunConfig
from crosstrain.domain import room
from crosstrain.domain.room import BYTES_PER_PARAMETER

CHECKPOINT_BYTES = 12.0
"""float32 weights and two moments of AdamW, per parameter."""
KEPT_CHECKPOINTS = 2
"""One that counts and one being made."""
SITE_INODES = 500


def parameters(model: ModelSection) -> int:
    """Parameters of a dense Qwen3: embedding, attention with norms of queries and keys, gated feed-forward, norms."""
    width, heads, kv_heads, head = (
        model.hidden_size,
        model.num_attention_heads,
        model.num_key_value_heads,
        model.head_dim,
    )
    attention = width * head * (2 * heads + 2 * kv_heads) + 2 * head
    layer = attention + 3 * width * model.intermediate_size + 2 * width
    embedding = model.vocab_size * width
    return embedding * (1 if model.tie_word_embeddings else 2) + model.num_hidden_layers * layer + width


def download_bytes(config: RunConfig) -> int:
    """A generation as sites fetch it."""
    return round(parameters(config.model) * BYTES_PER_PARAMETER[config.wire.weights])


def upload_bytes(config: RunConfig) -> int:
    """A delta as sites send it."""
    return round(parameters(config.model) * BYTES_PER_PARAMETER[config.wire.delta])


def site_bytes(config: RunConfig) -> int:
    """The most that a site's directory holds at a time: two generations, a delta (one of either packed as well, where they
    travel so), checkpoints, generation 0."""
    count = parameters(config.model)
    checkpoints = KEPT_CHECKPOINTS * CHECKPOINT_BYTES * count
    packed = download_bytes(config) + upload_bytes(config) if config.wire.compress == "planes" else 0
    held = 2 * download_bytes(config) + upload_bytes(config) + packed
    return round(held + checkpoints + BYTES_PER_PARAMETER["fp32"] * count)


def round_bytes(config: RunConfig) -> int:
    """What one round adds at the coordinator."""
    wire = config.wire
    packed = wire.compress == "planes"
    return room.round_bytes(parameters(config.model), wire.weights, wire.delta, sites(config), packed)


def sites(config: RunConfig) -> int:
    """Sites that the run file names, one at least."""
    return max(1, len(config.sites))
