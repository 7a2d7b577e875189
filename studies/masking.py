"""Why hidden scores are −∞ and not 0: python -m studies.masking        (4 minutes)

Five ways to keep a query from looking ahead. Four fill the hidden scores, with −∞, −10⁹, −10 or 0, before
the softmax; one sets the weights to 0 after it. For each: where the weight goes and what leaks from the
future with random q, k and v; then a small decoder trained with it, whose validation loss is taken twice,
with its own mask and, same weights, with −∞, as when text is written and there is no future yet.

Shapes: B windows, H heads, T queries and keys, D = d_head.
"""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from data.batches import Batches, validation_windows
from model.attention import fused_attention, hidden_keys
from studies.common import COLOURS, band, board, build, cached, fit, panels, save_figure, say, spread, table

WAYS = {"−∞": -math.inf, "−10⁹": -1e9, "−10": -10.0, "0": 0.0, "0 after": None}
SEEDS, STEPS, LENGTH, TOKENS = (1, 2, 3), 300, 64, 2**15
WORDS = [
    "model.n_layers=2", f"model.context_length={LENGTH}", "tokenizer.vocab_size=512",
    f"train.max_steps={STEPS}", "train.device=cpu",
]


def filled(
    way: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *,
    causal: bool = False, bias: Tensor | None = None, dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """`scaled_dot_product_attention`, hiding by one of WAYS, and as textbooks have it: nothing is done about
    rows that are wholly hidden."""
    scores = q @ k.mT / math.sqrt(q.size(-1)) + (0 if bias is None else bias)  # (B, H, T, T)
    hidden = hidden_keys(q, k, mask, causal)
    if WAYS[way] is None:
        weights = scores.softmax(-1).masked_fill(hidden, 0.0)
    else:
        weights = scores.masked_fill(hidden, WAYS[way]).softmax(-1)
    return F.dropout(weights, dropout) @ v, weights


def leak(way: str, T: int = LENGTH, D: int = 32) -> dict:
    """With random q, k, v of unit variance: the share of the weight that lies on later tokens, in the first
    row and in all; the mean sum of a row; how far an output moves, at most, when later values or later keys
    are drawn anew; and the sum of the weights in a row that is wholly hidden."""
    torch.manual_seed(0)
    q, k, v, other_k, other_v = torch.randn(5, 8, 1, T, D)
    out, weights = filled(way, q, k, v, causal=True)
    ahead = weights.triu(1).sum(-1) / weights.sum(-1)  # (B, H, T)
    half = torch.arange(T) < T // 2

    def moved(new_k: Tensor, new_v: Tensor) -> float:
        """Of the first half's outputs, when the second half's keys and values are others."""
        keys, values = (torch.where(half[:, None], a, b) for a, b in ((k, new_k), (v, new_v)))
        return (filled(way, q, keys, values, causal=True)[0] - out)[..., half, :].abs().max().item()

    blind = filled(way, q[..., :1, :], k, v, torch.ones(1, T, dtype=torch.bool))[1]
    return {
        "first row": ahead[..., 0].mean().item(), "ahead": ahead.mean().item(),
        "sum": weights.sum(-1).mean().item(), "by values": moved(k, other_v), "by keys": moved(other_k, v),
        "blind": blind.sum(-1).mean().item(),
    }


@torch.no_grad()
def loss_by_position(model, text) -> list[float]:
    """Nats a token at each position of the window (T,), over the first TOKENS of the validation split."""
    total, windows = torch.zeros(LENGTH), 0
    for x, y in validation_windows(text.validation[: TOKENS + 1], LENGTH, 8192):
        total += F.cross_entropy(model(x).mT, y, reduction="none").sum(0)
        windows += len(x)
    return (total / windows).tolist()


def compute(way: str, seed: int) -> dict:
    """Train one; its losses by position, with its own mask and with −∞."""
    config, text, model = build([*WORDS, f"train.seed={seed}"])
    attentions = [block.attention for block in model.blocks]
    for attention in attentions:
        attention.attend = partial(filled, way)
    with board("masking", f"{list(WAYS).index(way)}-{seed}") as writer:
        writer.add_text("mask", way)
        fit(config, model, Batches(text.train, 16, LENGTH, seed).batch,
            lambda step, loss: writer.add_scalar("train/loss", loss, step))
        own = loss_by_position(model, text)
        for attention in attentions:
            attention.attend = fused_attention
        honest = loss_by_position(model, text)
        for name, losses in (("own", own), ("honest", honest)):
            for position, loss in enumerate(losses):
                writer.add_scalar(f"masking/{name}_by_position", loss, position)
    return {"own": own, "honest": honest}


def draw_figure(runs: dict) -> None:
    figure, (share, own, honest) = panels(3, width=3.8)
    T = torch.arange(1, LENGTH + 1)
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 64, 1, LENGTH, 32)
    labels = {"−∞": "−∞ (and −10⁹)", "−10": "−10", "0": "0", "0 after": "0 after the softmax"}
    for (way, label), colour, line in zip(labels.items(), COLOURS, ("-", ":", "-", "-"), strict=False):
        weights, style = filled(way, q, k, v, causal=True)[1], {"color": colour, "linestyle": line}
        share.plot(T, weights.triu(1).sum(-1).mean((0, 1)), label=label, **style)
        for axis, name in ((own, "own"), (honest, "honest")):
            band(axis, T, [run[name] for run in runs[way]], **style)
    share.set(title="Random q and k", ylabel="weight on later tokens")
    own.set(title="Trained, with its own mask", ylabel="validation loss (nats a token)")
    honest.set(title="Same model, with −∞", ylabel="validation loss (nats a token)")
    for axis in (share, own, honest):
        axis.set(xlabel="position in the window, tokens")
    share.legend(frameon=False, fontsize=8)
    print("figure ", save_figure(figure, "masking"))


def main() -> None:
    leaks = {way: leak(way) for way in WAYS}
    header = ["hidden by", "ahead, row 1", "ahead", "row sum", "moved by values", "by keys", "sum, blind row"]
    rows = [[way, *(f"{value:.2g}" for value in found.values())] for way, found in leaks.items()]
    print(table(header, rows), "\n")
    runs = {
        way: [cached("masking", {"words": WORDS, "seed": seed, "way": way, "tokens": TOKENS},
                     partial(compute, way, seed)) for seed in SEEDS]
        for way in WAYS
    }
    mean = {way: {name: [sum(run[name]) / LENGTH for run in some] for name in ("own", "honest")}
            for way, some in runs.items()}
    print(table(["hidden by", "val loss, own mask", "val loss, −∞"],
                [[way, spread(found["own"]), spread(found["honest"])] for way, found in mean.items()]))
    draw_figure(runs)
    own, honest = ({way: spread(found[name]) for way, found in mean.items()} for name in ("own", "honest"))
    say(f"""A score of 0 is an invitation: {leaks["0"]["ahead"]:.2f} of the weight goes ahead, the loss
        looks like {own["0"]} and is {honest["0"]} once there is no future to look at; worse is 0 after
        the softmax, where no weight goes ahead, but later keys stand in the denominators, and a model
        reads the next token from them ({own["0 after"]}, in truth {honest["0 after"]}). Half true is that
        it must be −∞: −10⁹ does the same unless a whole row is hidden, and here even −10 does
        ({honest["−10"]} against {honest["−∞"]}).""")


if __name__ == "__main__":
    main()
