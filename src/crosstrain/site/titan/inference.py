"""Forward passes without training: the held-out measure and sampling. Collective: sharded layers are gathered."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy, pad
from torchtitan.components.loss import IGNORE_INDEX

from crosstrain.site.titan import ranks
from crosstrain.site.titan.data import TokenWindows, deal, model_inputs


class Inference:
    """The model of a torchtitan Trainer, without its training.

    Args:
        titan: the Trainer.
        context: the most tokens that the model sees.
        flex: whether its attention is flex attention, which has positions and wants whole blocks.
    """

    def __init__(self, titan: Any, context: int, flex: bool) -> None:
        self._titan = titan
        self._context = context
        self._flex = flex

    def evaluate(self, heldout: TokenWindows, windows: int, micro_batch: int) -> tuple[float, int]:
        """(sum of negative log-likelihoods in nats, number of tokens) of the first `windows` windows, or of all there are."""
        own, tokens = 0.0, 0
        for share in deal(range(min(windows, heldout.count)), micro_batch, ranks.world(), ranks.rank()):
            inputs, labels = heldout.batch(share, micro_batch)
            logits = self.logits(inputs, labels).flatten(0, 1)
            targets = labels.flatten().to(logits.device)
            each = cross_entropy(logits, targets, ignore_index=IGNORE_INDEX, reduction="none")
            own += float(each.double().sum().item())
            tokens += int((labels != IGNORE_INDEX).sum().item())
        return ranks.add(own), round(ranks.add(float(tokens)))

    def generate(self, prompt: list[int], tokens: int, temperature: float, seed: int) -> list[int]:
        """`tokens` more token numbers after `prompt`, of which the model sees the last `context`.

        Every rank draws the same numbers from the same seed, so all see the same continuation.

        Raises:
            ValueError: the prompt is empty.
        """
        if not prompt:
            raise ValueError("expected a prompt of at least one token, found none")
        generator = torch.Generator().manual_seed(seed)
        sequence = list(prompt)
        for _ in range(tokens):
            scores = self._next_scores(sequence[-self._context :])
            if temperature == 0:
                sequence.append(int(scores.argmax()))
            else:
                chances = torch.softmax(scores / temperature, dim=0)
                sequence.append(int(torch.multinomial(chances, 1, generator=generator)))
        return sequence[len(prompt) :]

    def _next_scores(self, seen: list[int]) -> Any:
        """Logits [vocabulary] of the token after `seen`, float32 on the CPU."""
        tokens = torch.tensor([seen])
        if self._flex:
            tokens = pad(tokens, (0, self._context - len(seen)))
        return self.logits(model_inputs(tokens, self._flex), tokens)[0, len(seen) - 1].cpu()

    def logits(self, inputs: dict[str, Any], labels: Any) -> Any:
        """Logits [rows, length, vocabulary] in float32 of what `TokenWindows.batch` gives."""
        titan = self._titan
        on_device = {name: value.to(titan.device) for name, value in inputs.items()}
        tokens, _, extra = titan.post_dataloading_process(on_device, labels)
        with torch.no_grad(), titan.train_context():
            return titan.model_parts[0](tokens, **extra).float()
