"""Attention as a soft dictionary: python -m studies.lookup        (10 seconds)

Eight entries and a key: the answer is the value that stands with this key. Who stands with whom is drawn
anew for each example, so that nothing but looking it up helps. The model is one attention head between an
embedding and a Linear: no positions, and no mask but one that hides the question from itself.

Shapes: B dictionaries, N entries, one question, C features.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dashboard import log_attention
from model.attention import MultiHeadAttention
from studies.common import COLOURS, band, board, cached, panels, save_figure, say, spread, table

ENTRIES, KEYS, VALUES, WIDTH = 8, 16, 16, 32
STEPS, BATCH, LR, SEEDS = 300, 64, 0.003, (1, 2, 3)
DRAWN = (0, 40, 300)  # steps


class Dictionary(nn.Module):
    """Entries key + value and a bare key → the value's logits, and how much each entry was looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.keys, self.values = nn.Embedding(KEYS, WIDTH), nn.Embedding(VALUES, WIDTH)
        self.attention = MultiHeadAttention(WIDTH, 1, bias=False)
        self.answer = nn.Linear(WIDTH, VALUES)

    def forward(self, keys: Tensor, values: Tensor, question: Tensor) -> tuple[Tensor, Tensor]:
        """keys, values (B, N) and the embedding of a key (B, C) → logits (B, VALUES), weights (B, N)."""
        x = torch.cat((self.keys(keys) + self.values(values), question[:, None]), 1)  # (B, N + 1, C)
        hidden = torch.arange(x.size(1)) == x.size(1) - 1  # (N + 1,)
        record: list[Tensor] = []
        y = self.attention(x, hidden, record=record)[:, -1]
        return self.answer(y), record[0][:, 0, -1, :-1]


def draw(number: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Keys (B, N), none twice in a dictionary; values (B, N); which entry is asked for (B,)."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.rand(number, KEYS, generator=generator).argsort(-1)[:, :ENTRIES]
    values = torch.randint(VALUES, (number, ENTRIES), generator=generator)
    return keys, values, torch.randint(ENTRIES, (number,), generator=generator)


def picked(x: Tensor, index: Tensor) -> Tensor:
    """x[b, index[b]] for each b."""
    return x.gather(1, index[:, None])[:, 0]


def compute(seed: int) -> dict:
    """Train one; what its look-ups are like in a thousand dictionaries it has not seen."""
    torch.manual_seed(seed)
    model, history, maps = Dictionary(), [], {}
    optimizer = torch.optim.AdamW(model.parameters(), LR)
    keys, values, asked = draw(1000, seed=10**6)
    with board("lookup", f"seed-{seed}") as writer:
        for step in range(STEPS + 1):
            if step % 10 == 0:
                history.append({"step": step} | look(model, keys, values, asked))
                for name, value in history[-1].items():
                    writer.add_scalar(f"lookup/{name}", value, step)
            if step in DRAWN:
                maps[step] = draw_map(writer, model, keys[0], values[0], step)
            k, v, a = draw(BATCH, seed=seed * 10**5 + step)
            loss = F.cross_entropy(model(k, v, model.keys(picked(k, a)))[0], picked(v, a))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return {"history": history, "maps": maps} | beyond(model, keys, values, asked)


@torch.no_grad()
def look(model: Dictionary, keys: Tensor, values: Tensor, asked: Tensor) -> dict:
    """How often the answer is right, and the mean weight of the right entry."""
    logits, weights = model(keys, values, model.keys(picked(keys, asked)))
    right = logits.argmax(-1) == picked(values, asked)
    return {"accuracy": right.float().mean().item(), "weight": picked(weights, asked).mean().item()}


@torch.no_grad()
def draw_map(writer, model: Dictionary, keys: Tensor, values: Tensor, step: int) -> list[list[float]]:
    """One dictionary asked for each of its keys in turn: a row for each, (N, N); also for TensorBoard."""
    rows = model(keys.expand(ENTRIES, -1), values.expand(ENTRIES, -1), model.keys(keys))[1]
    square = torch.zeros(2 * ENTRIES, 2 * ENTRIES)
    square[ENTRIES:, :ENTRIES] = rows
    k, v = keys.tolist(), values.tolist()
    labels = [f"{k[i]}={v[i]}" for i in range(ENTRIES)] + [f"{key}?" for key in k]
    log_attention(writer, "attention/dictionary", square[None, None], labels, step)
    return rows.tolist()


@torch.no_grad()
def beyond(model: Dictionary, keys: Tensor, values: Tensor, asked: Tensor) -> dict:
    """What no dictionary of a programming language does, means: `between`, the weights of the first two
    entries for questions on the line between their keys; `present` and `missing`, the weights, the largest
    first, for a key that is there and for one that is not; `certainty` of the latter's answer."""
    first, second = model.keys(keys[:, 0]), model.keys(keys[:, 1])
    line = [model(keys, values, torch.lerp(first, second, share))[1] for share in torch.linspace(0, 1, 21)]
    absent = F.one_hot(keys, KEYS).sum(1).argmin(-1)  # (B,)
    logits, missing = model(keys, values, model.keys(absent))
    present = model(keys, values, model.keys(picked(keys, asked)))[1]
    return {
        "between": [weights[:, :2].mean(0).tolist() for weights in line],
        "present": present.sort(descending=True)[0].mean(0).tolist(),
        "missing": missing.sort(descending=True)[0].mean(0).tolist(),
        "certainty": logits.softmax(-1).amax(-1).mean().item(),
    }


def draw_figure(results: list[dict]) -> None:
    figure, axes = panels(3, 2, width=3.4, height=2.9)
    maps, (curves, line, ranks) = axes[:3], axes[3:]
    one, history = results[0], [result["history"] for result in results]
    for axis, step in zip(maps, DRAWN, strict=True):
        image = axis.imshow(one["maps"][str(step)], vmin=0, vmax=1, cmap="viridis")
        axis.set(title=f"Step {step}", xlabel="entry", ylabel="key asked for", xticks=[], yticks=[])
    figure.colorbar(image, ax=maps[-1], label="weight", shrink=0.8)
    steps = [row["step"] for row in history[0]]
    for name, label in (("accuracy", "right answers"), ("weight", "weight of the right entry")):
        band(curves, steps, [[row[name] for row in rows] for rows in history], label=label)
    curves.set(title="The look-up gets sharp", xlabel="step")
    shares = [share / 20 for share in range(21)]
    line.plot(shares, one["between"])
    line.text(0.02, 0.5, "first entry", color=COLOURS[0])
    line.text(0.98, 0.5, "second entry", color=COLOURS[1], ha="right")
    line.set(title="A question between two keys", xlabel="way from the first key to the second")
    for label, shift in (("present", -0.2), ("missing", 0.2)):
        ranks.bar([rank + shift for rank in range(1, ENTRIES + 1)], one[label], 0.4, label=f"key {label}")
    ranks.set(title="A key that is not there", xlabel="entries, the most looked-at first")
    for axis in (curves, line, ranks):
        axis.set(ylabel="share" if axis is curves else "weight", ylim=(0, 1.03))
    for axis in (curves, ranks):
        axis.legend(frameon=False)
    print("figure ", save_figure(figure, "lookup"))


def main() -> None:
    settings = {"steps": STEPS, "batch": BATCH, "lr": LR, "width": WIDTH}
    results = [cached("lookup", settings | {"seed": seed}, partial(compute, seed)) for seed in SEEDS]
    rows = [
        [at[0]["step"], *(spread([row[name] for row in at]) for name in ("accuracy", "weight"))]
        for at in zip(*(result["history"] for result in results), strict=True)
        if at[0]["step"] in (0, 20, 40, 60, 100, 200, 300)
    ]
    print(table(["step", "right answers", "weight of the right entry"], rows))
    draw_figure(results)
    final = spread([result["history"][-1]["weight"] for result in results])
    most, sure = spread([r["missing"][0] for r in results], 2), spread([r["certainty"] for r in results], 2)
    say(f"""The look-up turns from soft to sharp within a hundred steps and stays a little soft: the right
        entry has {final} of the weight. The dictionary is half true: a key that is not there is no error
        but gets {most} of the weight on some entry, and an answer of probability {sure}.""")


if __name__ == "__main__":
    main()
