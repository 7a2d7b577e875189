"""One head against many: python -m studies.heads        (6 minutes)

The same decoder, 128 wide, cut into 1, 2, … 32 heads: as many weights each time, d_k from 128 down to 4. The
attention is the note's, without QK-norm. What the heads become: python -m studies.circuit.

Shapes: B windows, T tokens, L layers, H heads.
"""

from statistics import mean

import torch

from dashboard import evidence, heads
from model.weights import load
from studies.common import COLOURS, band, build, cached, panels, save_figure, say, spread, table, trained
from training import checkpoint

SEEDS, HEADS, WIDTH, STEPS, LENGTH = (1, 2, 3), (1, 2, 4, 8, 16, 32), 128, 300, 64
WORDS = [
    "train.device=cpu", "tokenizer.vocab_size=512", "model.n_layers=2", f"model.context_length={LENGTH}",
    "model.qk_norm=false", f"train.max_steps={STEPS}", f"train.eval_every={STEPS}",
    f"train.checkpoint_every={STEPS}", "log.attention_every=0", "log.sample_every=0",
]


def on_text(n_heads: int, seed: int) -> dict:
    """A decoder of so many heads, trained: its loss, how many weights it has, the attention that its sharpest
    head pays to the previous token, and by how many nats the loss rises without its dearest head."""
    words = [f"model.n_heads={n_heads}", f"train.seed={seed}", *WORDS]
    folder, state = trained("heads", words)

    def compute() -> dict:
        model, text = load(checkpoint.find(folder)), build(words)[1]
        ids = torch.from_numpy(text.validation[: 8 * LENGTH].astype("int64")).view(8, LENGTH)
        previous = heads.previous_token(model.attention_maps(ids), ids).mean(1)  # (L, B, H) → (L, H)
        worth = torch.stack([evidence.ablation(model, window) for window in ids]).mean(0)  # (L, H)
        size = sum(parameter.numel() for parameter in model.parameters())
        return {"sharpest": previous.max().item(), "worth": worth.max().item(), "weights": size}

    return {"loss": state["val_loss"]} | cached("heads", {"of": folder.name}, compute)


SEEN = {  # what is measured: title, unit
    "loss": ("One width, more heads", "validation loss (nats a token)"),
    "sharpest": ("The sharpest head", "attention to the previous token"),
    "worth": ("The head that is worth most", "loss rises without it by (nats)"),
}


def draw(found: dict[int, list[dict]]) -> None:
    figure, axes = panels(len(SEEN))
    widths = [WIDTH // n for n in HEADS]
    for axis, (key, (title, unit)) in zip(axes, SEEN.items(), strict=True):
        runs = zip(*([one[key] for one in some] for some in found.values()), strict=True)
        band(axis, widths, list(runs), marker="o", color=COLOURS[0])
        axis.set_xscale("log", base=2)
        axis.set_xticks(widths, [f"{width}\n{n}" for width, n in zip(widths, HEADS, strict=True)])
        axis.set(title=title, xlabel="d_k (above) × heads (below) = 128", ylabel=unit)
    print("figure ", save_figure(figure, "heads"))


def main() -> None:
    found = {n: [on_text(n, seed) for seed in SEEDS] for n in HEADS}
    rows = [
        [f"{n} × {WIDTH // n}", some[0]["weights"], *(spread([one[key] for one in some]) for key in SEEN)]
        for n, some in found.items()
    ]
    print(table(["heads × d_k", "weights", "val loss", "sharpest head", "rise without the best"], rows), "\n")
    draw(found)
    losses = {n: [one["loss"] for one in some] for n, some in found.items()}
    best = min(HEADS, key=lambda n: mean(losses[n]))
    alike = " ".join(str(WIDTH // n) for n in HEADS if min(losses[n]) <= max(losses[best]))
    one, narrow = (mean(losses[n]) - mean(losses[best]) for n in (HEADS[0], HEADS[-1]))
    say(f"""The lowest loss is at d_k = {WIDTH // best}, but over the seeds d_k = {alike} cannot be told
        apart: a flat valley, not a peak. One head of {WIDTH} loses {one:.3f} nats and everything hangs on it;
        d_k = {WIDTH // HEADS[-1]} loses {narrow:.3f}.""")


if __name__ == "__main__":
    main()
