"""RUN.toml: frozen, typed, read once, importable without heavy libraries.

The sections `run`, `model`, `data`, `inner`, `outer`, `round`, `wire` and `heldout` are the run spec: the same at the
coordinator and at every site, guarded by a digest at registration. `lease`, `coordinator`, `site` and `sites.NAME` are
local: they may differ from machine to machine.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, SecretStr, ValidationError, ValidationInfo, field_validator, model_validator

from crosstrain.batch_section import BatchSection, ShapeSection
from crosstrain.domain import timeouts
from crosstrain.errors import UsageError
from crosstrain.section import Count, Fraction, Positive, Seconds, Section

SITE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

S = TypeVar("S", bound=Section)


class RunSection(Section):
    """What is trained for how long."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = "run"
    """Shown to people."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of generation 0 and of the order of blocks."""
    rounds: Count = 100
    """The run is finished when this many generations after generation 0 are published."""
    epochs: Count = 1
    """The run is also finished when the corpus was merged this many times."""
    preset: Literal["paper", "tuned", "fedavg"] = "tuned"
    """Values of `outer` that RUN.toml does not set come from here."""


class ModelSection(Section):
    """A dense Qwen3, in the field names of its Hugging Face config.json."""

    vocab_size: Count
    """At least the corpus's; `crosstrain init` writes it."""
    hidden_size: Count = 1024
    """Width of the residual stream."""
    intermediate_size: Count = 3072
    """Width of the feed-forward layer."""
    num_hidden_layers: Count = 28
    """Transformer layers."""
    num_attention_heads: Count = 16
    """Query heads; a multiple of `num_key_value_heads`."""
    num_key_value_heads: Count = 8
    """Key and value heads."""
    head_dim: Count = 128
    """Width of one head."""
    rope_theta: Positive = 1e6
    """Base of the rotary position encoding."""
    max_position_embeddings: Count = 40960
    """Longest sequence; at least the corpus's `seq_len`."""
    rms_norm_eps: Positive = 1e-6
    """Epsilon of the RMS norms."""
    tie_word_embeddings: bool = True
    """Whether the output head is the embedding matrix."""
    attention: Literal["sdpa", "flex"] = "sdpa"
    """`sdpa`: plain causal over the packed window, on CPU and GPU alike. `flex`: GPU only."""

    @model_validator(mode="after")
    def _heads_divide(self) -> ModelSection:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError("num_attention_heads must be a multiple of num_key_value_heads")
        return self


class DataSection(Section):
    """The corpus and its cut into blocks."""

    corpus: str = "corpus"
    """Directory made by `crosstrain corpus build`; relative to RUN.toml. `site.corpus` overrides it per site."""
    block_windows: Count = 64
    """K: consecutive windows of a block, the unit of leasing."""


class InnerSection(Section):
    """The inner phase: H optimiser steps at a site between two exchanges."""

    steps: Count = 100
    """H."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """The inner optimiser."""
    lr: Positive = 3e-4
    """Peak learning rate (Muon: of the hidden matrices)."""
    adam_lr: Positive = 3e-4
    """Muon only: peak learning rate of embeddings, norms and the output head, which AdamW trains."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    """AdamW's decay rates of the first and second moment."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.1
    """Decoupled weight decay."""
    clip_norm: Positive = 1.0
    """The gradient of a step is scaled down to this norm."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Global steps over which the learning rate rises linearly to its peak."""
    min_lr_factor: Fraction = 0.1
    """The cosine ends at this fraction of the peak, at global step `run.rounds` x `inner.steps`."""
    engine: Literal["titan", "counting"] = "titan"
    """`titan` trains the model with torchtitan. `counting` is a stand-in without torch, to rehearse a run - network, queues,
    leases, walltimes - without spending accelerator hours; it learns nothing of language."""
    rehearsal_step_s: Annotated[float, Field(ge=0.0)] = 0.0
    """`counting` only: how long an optimiser step is made to last."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the forward and backward arithmetic; weights and optimiser state are float32."""


class OuterSection(Section):
    """The outer step m' = beta m + eta D, w' = w + beta m' + eta D. Unset values come from `run.preset`."""

    eta: Annotated[float, Field(gt=0.0, le=2.0)] | None = None
    """Outer learning rate of a round with two or more contributions."""
    beta: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    """Outer momentum of such a round, at the end of the ramp."""
    solo_eta: Annotated[float, Field(gt=0.0, le=2.0)] | None = None
    """eta of a round with a single contribution."""
    solo_beta: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    """beta of such a round; not ramped."""
    ramp: Fraction | None = None
    """beta grows linearly from 0 over this fraction of the planned inner steps; 0 means constant."""


class RoundSection(Section):
    """When a round closes and what is let into it."""

    cutoff_s: Seconds = timeouts.CUTOFF_S
    """A round that has a contribution closes this long after its first lease, whoever is still training."""
    drain_s: Annotated[Seconds, Field(validate_default=True)] = timeouts.DRAIN_S
    """Holders are asked to stop at a block boundary this long before the cutoff."""
    start_when_sites: Count = 1
    """The first round waits for this many sites ..."""
    start_after_s: Seconds = timeouts.START_AFTER_S
    """... but no longer than this after the first one came."""
    batch_windows: Annotated[int, Field(ge=0)] = 0
    """Windows of an optimiser step of all sites together that the planner aims at by choosing each site's accumulation; 0
    leaves every site its own."""
    norm_limit: Positive = 10.0
    """A delta whose norm exceeds this many times the running median is refused."""
    overlap: bool = False
    """Sites train their next phase while the last one's delta is uploaded and merged. Saves the time of the exchange, costs some
    quality."""

    @field_validator("drain_s")
    @classmethod
    def _drain_begins_after_the_round(cls, drain_s: float, info: ValidationInfo) -> float:
        cutoff_s = info.data.get("cutoff_s")
        if cutoff_s is not None and drain_s >= cutoff_s:
            raise ValueError(
                f"must be shorter than round.cutoff_s ({cutoff_s:g}), or holders are asked to stop as soon as they begin"
            )
        return drain_s


class WireSection(Section):
    """What crosses the network."""

    weights: Literal["bf16", "fp32"] = "bf16"
    """What sites download; the coordinator's own weights are float32."""
    delta: Literal["bf16", "fp32", "int8", "int4"] = "bf16"
    """What sites upload: int8 is half of bf16, int4 a quarter; what their rounding leaves over goes into the next delta."""
    compress: Literal["none", "planes"] = "none"
    """`planes`: what sites download and upload is packed without loss: bytes of equal significance together, then zstd."""


class HeldoutSection(Section):
    """The measure of every generation, taken by one site when it adopts it."""

    windows: Annotated[int, Field(ge=0)] = 64
    """How many held-out windows, from the first; 0 switches it off."""


class LeaseSection(Section):
    """Liveness: TTL = max(floor, 2.5 x seconds between progress reports + 2 x RTT)."""

    heartbeat_s: Seconds = timeouts.HEARTBEAT_S
    """Seconds between two heartbeats; also the least interval that the TTL is computed from."""
    ttl_floor_s: Seconds = timeouts.TTL_FLOOR_S
    """The shortest TTL of a lease."""
    boot_patience_s: Seconds = timeouts.BOOT_PATIENCE_S
    """A lease kept over a restart survives this long without progress while the trainer boots."""
    phase_patience_s: Seconds = timeouts.PHASE_PATIENCE_S
    """... and this long without progress in any other phase, however alive the heartbeat."""
    join_patience_s: Seconds = timeouts.JOIN_PATIENCE_S
    """A round with contributions waits this long for a live site that has not asked for work yet."""


class CoordinatorSection(Section):
    """The coordinator's machine."""

    dir: str = "coordinator"
    """Database and blobs; on a local disk, relative to RUN.toml."""
    database: SecretStr = SecretStr("")
    """PostgreSQL address, for example postgresql://crosstrain@db.example.org/run; empty: SQLite in `dir`."""
    objects: str = ""
    """Where blobs are: empty for `dir`, or s3://BUCKET/PREFIX, which needs the extra `s3`; credentials as AWS's tools take them."""
    objects_endpoint: str = ""
    """Address of an S3-compatible service that is not AWS's; sites fetch weights there and send them there, too."""
    objects_region: str = ""
    """Region of the bucket, if AWS's configuration does not say it."""
    objects_cache_gb: Positive = 50.0
    """With `objects`: what `dir` keeps of the blobs used last, gigabytes; more than one round needs."""
    keep_generations: Annotated[int, Field(ge=0)] = 0
    """So many of the newest generations are kept, with the deltas that were trained from them; 0 keeps all."""
    keep_every: Annotated[int, Field(ge=0)] = 0
    """... and every generation whose number is a multiple of this; 0 keeps no more."""
    takeover_s: Seconds = timeouts.TAKEOVER_S
    """A second coordinator on the same database takes over when the first shows no sign of life for so long."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8470
    """Port to listen on; 0 takes a free one."""

    @field_validator("objects_endpoint")
    @classmethod
    def _endpoint_is_of_a_bucket(cls, endpoint: str, info: ValidationInfo) -> str:
        if endpoint and not info.data.get("objects", True):
            raise ValueError("coordinator.objects is not set, so that blobs would be in coordinator.dir all the same")
        if endpoint and not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", endpoint):
            raise ValueError("must be http:// or https:// with a host and perhaps a port")
        return endpoint


class SiteSection(Section):
    """A site's machine; `[site]` holds defaults, `[sites.NAME]` what differs at one site."""

    url: str | tuple[str, ...] = "http://127.0.0.1:8470"
    """Address of the coordinator; several, in a list or separated by commas, are tried in turn."""
    blobs: str | tuple[str, ...] | None = None
    """Address that weights go to and come from, if not `site.url`: for sites whose messages alone take another way."""
    dir: str = "sites"
    """Spool and checkpoints; the site's name is appended."""
    corpus: str | None = None
    """Where this site's copy of the corpus is, if not at `data.corpus`."""
    ranks: Count = 1
    """W: trainer processes. More than one are started by torchrun."""
    micro_batch: Count = 1
    """B: windows of one forward pass on one rank."""
    accumulate: Count = 1
    """A: forward passes per optimiser step. A step takes B x W x A windows."""
    threads: Count = 1
    """CPU threads of each rank."""
    launch: tuple[str, ...] = ()
    """Words put before the trainer's command, for example ["nice", "-n", "5"] or ["apptainer", "exec", "image.sif"]."""
    margin_s: Annotated[float, Field(ge=0.0)] = timeouts.MARGIN_S
    """Kept free before the job's end, on top of the measured time of checkpoint and upload."""
    checkpoint_s: Seconds = timeouts.CHECKPOINT_EVERY_S
    """A phase that takes longer is saved this often at a block boundary; a restarted site goes on from there."""
    record_windows: bool = False
    """Ranks append the number of every window they train to `windows-*.log` in the site's directory."""
    batch: BatchSection | None = None
    """How the site's batch system is used, as `[sites.NAME.batch]`; `collect` and `submit` alone need it."""

    @property
    def windows_per_step(self) -> int:
        return self.micro_batch * self.ranks * self.accumulate


class RunConfig(Section):
    """The whole of RUN.toml."""

    run: RunSection = RunSection()
    model: ModelSection
    data: DataSection = DataSection()
    inner: InnerSection = InnerSection()
    outer: OuterSection = OuterSection()
    round: RoundSection = RoundSection()
    wire: WireSection = WireSection()
    heldout: HeldoutSection = HeldoutSection()
    lease: LeaseSection = LeaseSection()
    coordinator: CoordinatorSection = CoordinatorSection()
    site: SiteSection = SiteSection()
    sites: dict[Annotated[str, Field(pattern=SITE_NAME)], dict[str, Any]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sites_are_sites(self) -> RunConfig:
        for name in self.sites:
            try:
                self.site_named(name)
            except ValidationError as error:
                raise ValueError("; ".join(_faults(error, ["sites", name]))) from None
        return self

    def site_named(self, name: str) -> SiteSection:
        """`[site]` with `[sites.NAME]` laid over it.

        Raises:
            UsageError: this cannot be a site's name; it becomes a directory and a part of addresses.
        """
        if not re.fullmatch(SITE_NAME, name):
            raise UsageError(
                f"{name!r} cannot be a site's name.",
                "letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 64 characters",
            )
        return _strictly(SiteSection, {**self.site.model_dump(), **self.sites.get(name, {})})

    def without_section(self, name: str) -> str | None:
        """A sentence if other sites have sections of their own and this one has none: it may be misspelt."""
        if not self.sites or name in self.sites:
            return None
        return f"there is no [sites.{name}], only sections for {', '.join(sorted(self.sites))}: [site] alone counts"

    @property
    def total_steps(self) -> int:
        """Planned inner steps of the whole run, the horizon of the learning rate."""
        return self.run.rounds * self.inner.steps

    def spec(self) -> dict[str, Any]:
        """The part that must be equal everywhere, without what is only a place on a disk."""
        sections = ("run", "model", "data", "inner", "outer", "round", "wire", "heldout")
        spec: dict[str, Any] = self.model_dump(include=set(sections), mode="json")
        del spec["data"]["corpus"]
        return spec

    def spec_digest(self) -> str:
        """SHA-256 over the canonical JSON of `spec()`."""
        return hashlib.sha256(json.dumps(self.spec(), sort_keys=True).encode()).hexdigest()


def load_run(path: Path) -> RunConfig:
    """Reads and checks RUN.toml.

    Raises:
        UsageError: unreadable, not TOML, or a key that is unknown or out of range; names the key and its neighbours.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UsageError(
            f"There is no run file at {path}.", "give the path of RUN.toml, or make one with `crosstrain init`"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", "check the path and its permissions") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}.", "see docs/reference/run-file.md") from error
    try:
        return _strictly(RunConfig, document)
    except ValidationError as error:
        raise UsageError(_explain(path, error), "every key is described in docs/reference/run-file.md") from None


def _strictly(section: type[S], document: dict[str, Any]) -> S:
    """A section of the types that it declares: "60" is no number and 1 no truth value. By way of JSON, in which a list may be
    a tuple and a whole number a float, as in TOML."""
    return section.model_validate_json(json.dumps(document, default=str), strict=True)


def _explain(path: Path, error: ValidationError) -> str:
    return f"{path}: " + "; ".join(_faults(error, [])) + "."


def _faults(error: ValidationError, section: list[str]) -> list[str]:
    """One clause per fault, each with its full key."""
    lines = []
    for problem in error.errors():
        parts = [*section, *(str(part) for part in problem["loc"])]
        where = ".".join(parts)
        if problem["type"] == "extra_forbidden":
            known = _known_keys(parts[:-1])
            close = difflib.get_close_matches(parts[-1], known, n=1)
            lines.append(
                f"{where}: unknown key; " + (f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}")
            )
        elif problem["type"] == "missing":
            lines.append(f"{where}: required, but not set")
        elif problem["type"] == "value_error" and not parts:
            lines.append(str(problem["ctx"]["error"]))
        else:
            lines.append(f"{where}: {problem['msg'].removeprefix('Value error, ')}, found {problem['input']!r}")
    return lines


def _known_keys(parents: list[str]) -> list[str]:
    if not parents:
        return list(RunConfig.model_fields)
    if parents[0] in ("site", "sites") and "batch" in parents:
        return list((ShapeSection if "shapes" in parents else BatchSection).model_fields)
    if parents[0] == "sites":
        return list(SiteSection.model_fields)
    field = RunConfig.model_fields.get(parents[0])
    section = field.annotation if field else None
    return list(section.model_fields) if isinstance(section, type) and issubclass(section, BaseModel) else []
