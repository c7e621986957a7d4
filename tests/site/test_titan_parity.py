"""Exported weights are a Hugging Face Qwen3: transformers computes the same logits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.site.bench import Bench, plan, weights_of

from crosstrain.site.settings import TrainerSettings

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]  # transformers' own warnings are its own


def test_transformers_agrees(benches: Callable[[str], Bench], settings: TrainerSettings) -> None:
    from crosstrain.site.titan.trainer import TitanTrainer

    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    bench = benches("titan")
    bench.reset()
    assert isinstance(bench.trainer, TitanTrainer)
    bench.trainer.run(plan((0, 40)), lambda _: False)
    fields = settings.model.model_dump(exclude={"attention", "rope_theta"})
    rope = {"rope_type": "default", "rope_theta": settings.model.rope_theta}
    config = transformers.Qwen3Config(**fields, rope_parameters=rope, attn_implementation="sdpa")
    model = transformers.Qwen3ForCausalLM(config).eval()
    held = {name: torch.from_numpy(tensor) for name, tensor in weights_of(bench.trainer).items()}
    missing = model.load_state_dict(held, strict=False)
    assert set(missing.missing_keys) <= {"lm_head.weight"}
    assert not missing.unexpected_keys
    tokens = torch.from_numpy(np.fromfile(settings.heldout_tokens, "<u2").astype(np.int64))
    length = settings.seq_len
    windows = torch.stack([tokens[at * length : (at + 1) * length + 1] for at in range(8)])
    with torch.no_grad():
        theirs = model(windows[:, :-1]).logits
        ours = bench.trainer.inference.logits({"input": windows[:, :-1]}, windows[:, 1:])
        loss = torch.nn.functional.cross_entropy(theirs.flatten(0, 1), windows[:, 1:].flatten(), reduction="sum")
    assert float((theirs - ours).abs().max()) < 1e-4
    assert math.isclose(float(loss), bench.trainer.evaluate(8)[0], rel_tol=1e-5)
