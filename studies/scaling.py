"""Why scores are divided by √d_k: python -m studies.scaling        (4 minutes)

    1. Random q and k of unit variance: the variance of q·k, and what the softmax over 64 keys makes of the
       scores with and without the factor, forward and backward, for d_k = 8 … 512.
    2. A small decoder trained with and without it, from two beginnings: q and k of unit variance, as the
       claim has them, and small ones, as GPT-2 draws its weights. No QK-norm, which would bound the scores.

Shapes: N independent queries, S keys, D = d_k.
"""

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from data.batches import Batches
from model.attention import fused_attention, scaled_dot_product_attention
from studies.common import (
    COLOURS,
    band,
    board,
    build,
    cached,
    fit,
    panels,
    save_figure,
    say,
    spread,
    table,
    validation_loss,
)

WIDTHS, KEYS, QUERIES = (8, 16, 32, 64, 128, 256, 512), 64, 2000
SEEDS, STEPS, LENGTH, WIDTH = (1, 2, 3), 300, 64, 128
WORDS = [
    "model.n_layers=2", "model.n_heads=1", f"model.d_model={WIDTH}", f"model.context_length={LENGTH}",
    "model.qk_norm=false", "tokenizer.vocab_size=512", "optimizer=adamw", "optimizer.lr=0.003",
    f"train.max_steps={STEPS}", "train.device=cpu",
]
BEGINNINGS = {"of unit variance": WIDTH**-0.5, "as GPT-2 draws": 0.02}  # the weights' standard deviation


def unscaled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, **keywords) -> tuple[Tensor, None]:
    """softmax(q kᵀ + bias) v: attention without the factor, since √D · q is divided by √D."""
    return fused_attention(q * math.sqrt(q.size(-1)), k, v, mask, **keywords)


def random_scores(d: int, scaled: bool, seed: int = 0) -> dict:
    """For unit-variance q, k, v and an upstream gradient of unit variance: the variance of q·k; the mean
    largest weight and exp(entropy), the number of keys that a query looks at, as it were; and the root mean
    square gradient of q and of k, over all queries, beside the median over queries for q."""
    torch.manual_seed(seed)
    q = torch.randn(QUERIES, 1, 1, d, requires_grad=True)  # (N, 1, 1, D): each query has its own keys
    k = torch.randn(QUERIES, 1, KEYS, d, requires_grad=True)
    v, upstream = torch.randn(QUERIES, 1, KEYS, d), torch.randn(QUERIES, 1, 1, d)
    out, weights = scaled_dot_product_attention(q if scaled else q * math.sqrt(d), k, v)
    (out * upstream).sum().backward()
    weights, each = weights.detach(), q.grad.square().mean(-1).sqrt().flatten()  # (N,)
    return {
        "variance": (q @ k.mT).var().item(),
        "largest": weights.amax(-1).mean().item(),
        "keys": torch.special.entr(weights).sum(-1).exp().mean().item(),
        "q": each.square().mean().sqrt().item(),
        "k": k.grad.square().mean().sqrt().item(),
        "median q": each.median().item(),
    }


def compute(scaled: bool, beginning: str, seed: int) -> dict:
    """Train one; `scores` before the first step, and with the validation loss at each tenth of the run: the
    last over the whole split, the others over its first 8,192 tokens."""
    config, text, model = build([*WORDS, f"train.seed={seed}"])
    for block in model.blocks:
        nn.init.normal_(block.attention.qkv.weight[: 2 * WIDTH], std=BEGINNINGS[beginning])
        block.attention.attend = fused_attention if scaled else unscaled
    x = torch.from_numpy(text.validation[: 16 * LENGTH].astype("int64")).view(16, LENGTH)
    part = replace(text, validation=text.validation[: 128 * LENGTH + 1])  # of the validation text, on the way
    history: list[dict] = []
    run = f"{'with' if scaled else 'without'}-{beginning.replace(' ', '-')}-{seed}"
    with board("scaling", run) as writer:

        def look(step: int, loss: float) -> None:
            writer.add_scalar("train/loss", loss, step)
            if step % (STEPS // 10) == 0 or step == 1:
                loss = validation_loss(model, text if step == STEPS else part, LENGTH)
                history.append({"step": step, "loss": loss} | scores(model, x))
                for name, value in history[-1].items():
                    writer.add_scalar(f"scaling/{name}", value, step)

        first = scores(model, x)
        fit(config, model, Batches(text.train, 16, LENGTH, seed).batch, look)
    return {"first": first, "history": history}


@torch.no_grad()
def scores(model: nn.Module, x: Tensor) -> dict:
    """What enters the softmax (its standard deviation) and what leaves it (the mean largest weight after
    the tenth position), over all layers, for ids x (B, T)."""
    entering, leaving = [], []

    def recording(attend, q, k, v, mask=None, **keywords):
        entered = q * math.sqrt(q.size(-1)) if attend is unscaled else q
        entering.append((entered @ k.mT / math.sqrt(q.size(-1))).std().item())
        weights = scaled_dot_product_attention(entered, k, v, mask, **keywords)[1]
        leaving.append(weights[..., 10:, :].amax(-1).mean().item())
        return attend(q, k, v, mask, **keywords)

    attentions = [block.attention for block in model.blocks]
    attends = [attention.attend for attention in attentions]
    for attention in attentions:
        attention.attend = partial(recording, attention.attend)
    model(x)
    for attention, attend in zip(attentions, attends, strict=True):
        attention.attend = attend
    return {"std": sum(entering) / len(entering), "largest": sum(leaving) / len(leaving)}


def draw_figure(random: dict, runs: dict) -> None:
    figure, axes = panels(2, 2, width=4.2, height=3.1)
    styles = {True: ("with 1/√d_k", COLOURS[0], "o"), False: ("without", COLOURS[1], "s")}
    for scaled, (label, colour, marker) in styles.items():
        rows = [random[scaled, d] for d in WIDTHS]
        axes[0].plot(WIDTHS, [row["largest"] for row in rows], color=colour, marker=marker, label=label)
        for name, line in (("q", "-"), ("median q", ":")):
            shown = f"{label}, {'root mean square' if name == 'q' else 'median query'}"
            axes[1].plot(WIDTHS, [row[name] for row in rows], line, color=colour, marker=marker, label=shown)
    axes[0].set(title=f"Largest of {KEYS} weights, random q and k", ylabel="weight", ylim=(0, 1))
    axes[1].set(title="Gradient that reaches q", ylabel="gradient", yscale="log", ylim=(0.03, 99))
    for axis in axes[:2]:
        axis.set(xlabel="d_k", xscale="log", xticks=WIDTHS, xticklabels=WIDTHS)
        axis.minorticks_off()
    for axis, beginning in zip(axes[2:], BEGINNINGS, strict=True):
        for scaled, (label, colour, _) in styles.items():
            some = [run["history"] for run in runs[scaled, beginning]]
            losses = [[row["loss"] for row in history] for history in some]
            band(axis, [row["step"] for row in some[0]], losses, color=colour, label=label)
        axis.set(title=f"Training, q and k {beginning}", xlabel="step", ylabel="val loss (nats a token)")
    for axis in axes:
        axis.legend(frameon=False, fontsize=8)
    print("figure ", save_figure(figure, "scaling"))


def main() -> None:
    random = {(scaled, d): random_scores(d, scaled) for scaled in (True, False) for d in WIDTHS}
    names = ["variance", "largest", "keys", "q", "median q", "k"]
    rows = [
        [f"{d}, {'with' if scaled else 'without'}", *(f"{row[name]:.3g}" for name in names)]
        for (scaled, d), row in random.items()
    ]
    header = ["d_k, factor", "var q·k", "largest weight", "keys", "∇q rms", "∇q median", "∇k rms"]
    print(table(header, rows), "\n")
    runs = {
        (scaled, beginning): [cached(
            "scaling", {"words": WORDS, "seed": seed, "scaled": scaled, "std": std},
            partial(compute, scaled, beginning, seed),
        ) for seed in SEEDS]
        for beginning, std in BEGINNINGS.items() for scaled in (True, False)
    }
    rows = [
        [f"{beginning}, {'with' if scaled else 'without'}",
         *(spread([run["first"][name] for run in some], 2) for name in ("std", "largest")),
         *(spread([run["history"][-1][name] for run in some]) for name in ("std", "loss"))]
        for (scaled, beginning), some in runs.items()
    ]
    header = ["q and k at first, factor", "std of scores", "largest weight", "std at last", "val loss"]
    print(table(header, rows))
    draw_figure(random, runs)
    wide = random[False, WIDTHS[-1]]
    ends = {key: spread([run["history"][-1]["loss"] for run in some]) for key, some in runs.items()}
    say(f"""The variance of q·k is d_k, and without the factor one key of {KEYS} gets
        {wide["largest"]:.2f} of the weight at d_k = {WIDTHS[-1]}; training without it ends at
        {ends[False, "of unit variance"]} instead of {ends[True, "of unit variance"]}, also where GPT-2's
        small weights keep the first scores small: {ends[False, "as GPT-2 draws"]} instead of
        {ends[True, "as GPT-2 draws"]}. Half true is that gradients vanish: they do for most queries
        (median {wide["median q"]:.2g}, root mean square {wide["q"]:.2g}), and the few that are still
        undecided get all the more.""")


if __name__ == "__main__":
    main()
