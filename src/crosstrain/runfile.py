"""Writes a RUN.toml that works as it is: for `crosstrain init` and for the demo."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from crosstrain.config import RunConfig, load_run
from crosstrain.corpus.manifest import Manifest
from crosstrain.disk import disk_faults
from crosstrain.doctor.examine import circumstances, settings_of
from crosstrain.domain.timeouts import USUAL_ROUND_S, USUAL_RTT_S, derive
from crosstrain.errors import EnvironmentFault, UsageError

LINK = 12.5e6
"""Bytes per second of the way to the coordinator that a fresh run file is written for: 100 Mbit/s."""

RANKS = "ranks = 1               # processes, one per accelerator"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Model shape and inner optimiser of one size.

    Attributes:
        lr, adam_lr: peak learning rates; adam_lr counts for Muon only.
        steps: H.
        warmup: inner steps.
    """

    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    optimizer: str
    lr: float
    adam_lr: float
    steps: int
    warmup: int
    block_windows: int
    dtype: str
    tied: bool = True


RECIPES = {
    # The demo's: half a million parameters beside a vocabulary of 2,048. Of adam_lr .004, .012 and .03, and of lr .016 and
    # .03, these were best after ten rounds of three sites.
    "tiny": Recipe(96, 256, 3, 6, 2, 16, "muon", 0.016, 0.03, 20, 10, 8, "float32"),
    "60m": Recipe(512, 1536, 8, 8, 4, 64, "adamw", 1e-3, 1e-3, 50, 200, 16, "bfloat16"),
    # Peak learning rate: 3979 N^-0.780 at N = 6e8 for two sites (arXiv 2503.09799).
    "0.6b": Recipe(1024, 3072, 28, 16, 8, 128, "adamw", 5.7e-4, 5.7e-4, 50, 1000, 64, "bfloat16"),
}


@dataclass(frozen=True, slots=True)
class Local:
    """What differs between a run on one laptop and a real one.

    Attributes:
        sites: name -> extra lines of `[sites.NAME]`.
        inner: further lines of `[inner]`.
        outer_round: lines of `[round]`.
        lease: lines of `[lease]`.
        site: further lines of `[site]`.
    """

    url: str = "https://coordinator.example.org"
    port: int = 8470
    rounds: int = 200
    seed: int = 1
    epochs: int = 1
    micro_batch: int = 8
    heldout_windows: int = 64
    sites: tuple[tuple[str, str], ...] = ()
    inner: str = ""
    outer_round: str = ""
    lease: str = ""
    site: str = ""


def write_run_file(
    path: Path, name: str, size: str, corpus: Path, manifest: Manifest, local: Local | None = None
) -> None:
    """Writes and checks the run file.

    Raises:
        UsageError: there is a file already.
        EnvironmentFault: the file cannot be written.
    """
    if path.exists():
        raise UsageError(f"{path} exists already.", "choose another --out, or remove it")
    recipe = RECIPES[size]
    text = run_file(name, recipe, corpus, manifest, local or Local())
    if local is None:
        text = run_file(name, recipe, corpus, manifest, patient(RunConfig.model_validate(tomllib.loads(text))))
    try:
        with disk_faults(path):
            path.write_text(text, encoding="utf-8")
    except FileNotFoundError:
        raise EnvironmentFault(f"The directory {path.parent} does not exist.", "make it first") from None
    load_run(path)


def patient(config: RunConfig) -> Local:
    """A real run whose durations hold for rounds of half an hour over `LINK`: what is longer than the default is written.
    `crosstrain doctor` measures the real link."""
    table = derive(circumstances(config, USUAL_ROUND_S, LINK, USUAL_RTT_S))
    given = settings_of(config, table)
    longer: dict[str, list[str]] = {"round": [], "lease": [], "site": []}
    for row in table:
        section, _, key = row.key.partition(".")
        if row.key and row.seconds > given[row.key]:
            longer[section].append(f"{key} = {10 * ceil(row.seconds / 10)}   # {row.rule}; see `crosstrain doctor`")
    return Local(
        outer_round="\n".join(longer["round"]),
        lease="\n".join(longer["lease"]),
        site="\n".join([RANKS, *longer["site"]]),
    )


def run_file(name: str, recipe: Recipe, corpus: Path, manifest: Manifest, local: Local) -> str:
    """The text of a RUN.toml."""
    sections = [
        f"""# A crosstrain run. Every key: docs/reference/run-file.md

[run]
name = {json.dumps(name)}
seed = {local.seed}
rounds = {local.rounds}          # generations; with `inner.steps` also the horizon of the learning rate
epochs = {local.epochs}
preset = "tuned"        # outer step: "tuned", "paper" or "fedavg"

[model]                 # Qwen3, in the names of its Hugging Face config.json
vocab_size = {manifest.vocab_size}
hidden_size = {recipe.hidden}
intermediate_size = {recipe.ffn}
num_hidden_layers = {recipe.layers}
num_attention_heads = {recipe.heads}
num_key_value_heads = {recipe.kv_heads}
head_dim = {recipe.head_dim}
max_position_embeddings = {max(4096, manifest.seq_len)}
tie_word_embeddings = {str(recipe.tied).lower()}

[data]
corpus = {json.dumps(str(corpus))}
block_windows = {recipe.block_windows}

[inner]
optimizer = "{recipe.optimizer}"
lr = {recipe.lr}
adam_lr = {recipe.adam_lr}
steps = {recipe.steps}             # H, inner steps between two exchanges
warmup_steps = {recipe.warmup}
dtype = "{recipe.dtype}"
{local.inner}
[heldout]
windows = {local.heldout_windows}

[lease]
{local.lease or "# heartbeat_s = 5.0"}

[coordinator]
dir = "coordinator"
port = {local.port}

[site]                  # defaults of every site; [sites.NAME] overrides them for one
url = {json.dumps(local.url)}
dir = "sites"
micro_batch = {local.micro_batch}         # windows of one forward pass on one rank
{local.site or RANKS}
"""
    ]
    if local.outer_round:
        sections.append(f"[round]\n{local.outer_round}\n")
    sections += [f"[sites.{site}]\n{lines}\n" for site, lines in local.sites]
    return "\n".join(sections)
