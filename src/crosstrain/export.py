"""From a run to a model: a Hugging Face checkpoint, and a sample of text."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from crosstrain.assembly import RunFiles, load_corpus, open_stored_run, tokenizer_path, trainer_settings
from crosstrain.clock import SystemClock, pause
from crosstrain.config import ModelSection
from crosstrain.corpus import tokenizer
from crosstrain.disk import disk_faults
from crosstrain.domain.generation import GenerationRecord
from crosstrain.domain.timeouts import GENERATE_LOOK_S, GENERATE_S
from crosstrain.errors import EnvironmentFault, UsageError
from crosstrain.site.process_link import ProcessLink
from crosstrain.site.trainer_link import Done, Failed, Ready
from crosstrain.storage import run_store
from crosstrain.storage.object_store import ObjectStore


def export_checkpoint(files: RunFiles, out: Path, generation: int | None) -> Path:
    """Writes config.json, model.safetensors (float32) and tokenizer.json; `transformers` loads the directory.

    Raises:
        UsageError: no such generation, or `out` is not empty.
    """
    record, objects = _find(files, generation)
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty.", "choose a new directory with --out")
    with disk_faults(out):
        out.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(objects.path(record.master), out / "model.safetensors")
        manifest = load_corpus(files)
        config = hf_config(files.config.model, manifest.eot_token_id)
        (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        shutil.copyfile(tokenizer_path(files), out / "tokenizer.json")
        notes = {"run": files.config.run.name, "generation": record.number, "master_sha256": record.master}
        (out / "crosstrain.json").write_text(json.dumps(notes, indent=2) + "\n", encoding="utf-8")
    return out


def hf_config(model: ModelSection, eot: int) -> dict[str, Any]:
    """config.json of a dense Qwen3."""
    shape = model.model_dump(exclude={"attention", "rope_theta"})
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        **shape,
        "rope_theta": model.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rope_theta},
        "attention_bias": False,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "use_sliding_window": False,
        "torch_dtype": "float32",
        "dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": eot,
        "use_cache": True,
    }


def generate_text(
    files: RunFiles, generation: int | None, prompt: str, tokens: int, temperature: float, seed: int
) -> str:
    """The prompt and its continuation by the global model, on one rank.

    Raises:
        UsageError: no such generation.
        EnvironmentFault: the trainer cannot be started; without torch it says what to install.
    """
    record, objects = _find(files, generation)
    corpus, manifest = files.corpus_dir(), load_corpus(files)
    ids = tokenizer.encode(corpus, prompt) or [manifest.eot_token_id]
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        name = next(iter(files.config.sites), "local")
        link = ProcessLink(trainer_settings(files, manifest, name, directory), directory / "trainer.log")
        link.start()
        try:
            _await(link, None)
            _ask(link, "load", path=str(objects.path(record.weights)), generation=record.number)
            value = _ask(link, "generate", prompt=ids, tokens=tokens, temperature=temperature, seed=seed)
        finally:
            link.close()
    return prompt + tokenizer.decode(corpus, value["tokens"])


def _ask(link: ProcessLink, op: str, **arguments: Any) -> dict[str, Any]:
    link.submit(op, **arguments)
    return _await(link, op)


def _await(link: ProcessLink, op: str | None) -> dict[str, Any]:
    clock = SystemClock()
    started = clock.perf()
    while clock.perf() - started < GENERATE_S:
        match link.poll():
            case Ready() if op is None:
                return {}
            case Done(done, value) if done == op:
                return value
            case Failed(error):
                raise error
            case None:
                pause(GENERATE_LOOK_S)
    raise EnvironmentFault(f"The trainer did not answer within {GENERATE_S:.0f} s.", "is the machine overloaded?")


def _find(files: RunFiles, generation: int | None) -> tuple[GenerationRecord, ObjectStore]:
    database, objects = open_stored_run(files)
    try:
        with database.read() as connection:
            chain = run_store.generations(connection)
    finally:
        database.close()
    if not chain:
        raise UsageError("The run has no generation yet.", "start a site; the first one makes generation 0")
    wanted = len(chain) - 1 if generation is None else generation
    if not 0 <= wanted < len(chain):
        raise UsageError(f"There is no generation {wanted}.", f"choose one of 0 to {len(chain) - 1}")
    return chain[wanted], objects
