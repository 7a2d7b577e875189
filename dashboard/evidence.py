"""What a model does with a probe, asked of the model itself: on the explicit path, without gradients.

Shapes: L layers, H heads, T tokens of the probe, `ids` (T,). Any decoder will do that gives logits
(1, T, V), appends each layer's weights (1, H, T, T) to a list `record`, and has `blocks[layer].attention`
with `n_heads`, `d_head` and `out`. Losses are in nats.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@torch.no_grad()
def look(model: nn.Module, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Every head's weights (L, H, T, T), and the loss of each token but the first, (T - 1,); on the CPU."""
    record: list[Tensor] = []
    logits = model(ids[None], record=record)
    return torch.cat(record).cpu(), _loss(logits, ids).cpu()


@torch.no_grad()
def ablation(model: nn.Module, ids: Tensor) -> Tensor:
    """(L, H): how much the mean loss rises when what a head says is replaced by zeros.

    Scores tell where a head looks, this tells whether the model relies on it (Michel et al. 2019, arXiv
    1905.10650). Around 0: nothing is lost, perhaps because other heads do the same.
    """
    whole = _loss(model(ids[None]), ids).mean().item()
    layers = [block.attention for block in model.blocks]
    without = [[_without(model, layer, head, ids) for head in range(layer.n_heads)] for layer in layers]
    return torch.tensor(without) - whole


def induction_gain(loss: Tensor) -> float | None:
    """Loss on the first copy − loss on the second, for `heads.repeated_tokens`; None if that is too short.

    Only a model that looks back for the earlier copy can foresee the second: with random tokens, nothing else
    helps (Olsson et al. 2022, arXiv 2209.11895). The second copy's first token, which nobody can foresee,
    counts for neither.
    """
    half = (len(loss) + 2) // 2  # tokens in the first copy; loss[i] belongs to token i + 1
    first, second = loss[: half - 1], loss[half:]
    return (first.mean() - second.mean()).item() if len(second) else None


def _loss(logits: Tensor, ids: Tensor) -> Tensor:
    return F.cross_entropy(logits[0, :-1].float(), ids[1:], reduction="none")


def _without(model: nn.Module, attention: nn.Module, head: int, ids: Tensor) -> Tensor:
    """The mean loss when zeros stand where this head's part of the features goes into `out`."""
    first = head * attention.d_head

    def silence(_, inputs: tuple[Tensor]) -> tuple[Tensor]:
        said = inputs[0].clone()
        said[..., first : first + attention.d_head] = 0
        return (said,)

    hook = attention.out.register_forward_pre_hook(silence)
    try:
        return _loss(model(ids[None]), ids).mean()
    finally:
        hook.remove()
