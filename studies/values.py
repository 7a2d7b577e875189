"""Reading a map: the values count too: python -m studies.values        (4 minutes)

What a head says to token t is Σ_s α_ts f(s), f(s) = v_s W_O: the weight α is half of each term. Kobayashi et
al. 2020 (arXiv 2004.10102) draw ‖α_ts f(s)‖ instead of α_ts. How different are the two maps of a decoder
trained here, and which of them says better what the model relies on? That is tested by taking single terms
away: the weight of one source token s is set to 0 in one head, for all t, and the predictions change by so
many nats (the Kullback–Leibler divergence, summed over t).

Shapes: L layers, H heads, T queries and as many sources, D = d_head, C = d_model.
"""

from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dashboard import log_attention
from model.attention import scaled_dot_product_attention
from model.gpt import GPT
from model.weights import load
from studies.common import COLOURS, board, build, cached, panels, save_figure, say, spread, table, trained
from training import checkpoint

SEEDS, TEXTS, LENGTH, DRAWN = (1, 2, 3), 4, 64, 24
WORDS = [
    "tokenizer.vocab_size=1024", "train.batch_size=8", "train.max_steps=600", "train.eval_every=600",
    "train.checkpoint_every=600", "log.sample_every=0", "train.device=cpu",
]


@torch.no_grad()
def terms(model: GPT, ids: Tensor) -> tuple[Tensor, Tensor]:
    """For ids (T,): every head's weights α (L, H, T, T) and the lengths of what it can say, ‖f‖ (L, H, T)."""
    weights, inputs = [], []
    attentions = [block.attention for block in model.blocks]
    hooks = [a.qkv.register_forward_pre_hook(lambda _, x: inputs.append(x[0])) for a in attentions]
    model(ids[None], record=weights)
    for hook in hooks:
        hook.remove()
    norms = []
    for attention, x in zip(attentions, inputs, strict=True):
        H, D = attention.n_heads, attention.d_head
        v = attention.qkv(x[0]).view(-1, 3, H, D)[:, 2]  # (T, H, D)
        out = attention.out.weight.view(-1, H, D)  # (C, H, D)
        norms.append(torch.einsum("thd,chd->htc", v, out).norm(dim=-1))
    return torch.cat(weights), torch.stack(norms)


def without(layer_head: int, q: Tensor, k: Tensor, v: Tensor, mask=None, **keywords) -> tuple[Tensor, Tensor]:
    """Attention in which, in the b-th of B = T copies of a text, one head gets nothing from token b."""
    _, weights = scaled_dot_product_attention(q, k, v, mask, **keywords)
    copies = torch.arange(len(weights))
    weights[copies, layer_head, :, copies] = 0
    return weights @ v, weights


@torch.no_grad()
def effects(model: GPT, ids: Tensor) -> Tensor:
    """(L, H, T): by how many nats, summed over the text, the predictions change when a head gets nothing from
    a token."""
    whole = model(ids[None]).log_softmax(-1)  # (1, T, V)
    found = []
    for block in model.blocks:
        attend = block.attention.attend
        for head in range(block.attention.n_heads):
            block.attention.attend = partial(without, head)
            changed = model(ids.expand(len(ids), -1)).log_softmax(-1)  # (T, T, V)
            divergence = F.kl_div(changed, whole.expand_as(changed), reduction="none", log_target=True)
            found.append(divergence.sum((1, 2)))
        block.attention.attend = attend
    return torch.stack(found).view(len(model.blocks), -1, len(ids))


def rank_correlation(x: Tensor, y: Tensor) -> float:
    """Spearman's, of two rows of numbers: 1 = the same order."""
    ranks = torch.stack([values.flatten().argsort().argsort().double() for values in (x, y)])
    return torch.corrcoef(ranks)[0, 1].item()


def compare(model: GPT, ids: Tensor, counts: Tensor) -> dict[str, float]:
    """What the two maps of one text have to do with each other, and with the effects; `counts` (V,): how
    often each token stands in the training text."""
    weights, norms = terms(model, ids)
    effect, plain = effects(model, ids).flatten(0, 1), weights.sum(-2).flatten(0, 1)  # (L·H, T)
    normed, seen = plain * norms.flatten(0, 1), torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
    each = norms[..., None, :].expand_as(weights)

    def by_head(x: Tensor, y: Tensor = effect) -> float:
        return sum(map(rank_correlation, x, y)) / len(x)

    return {
        "weight": rank_correlation(plain, effect), "norm": rank_correlation(normed, effect),
        "weight, in a head": by_head(plain), "norm, in a head": by_head(normed),
        "weight and length": rank_correlation(weights[..., seen], each[..., seen]),
        "frequency and length": by_head(norms.flatten(0, 1), counts[ids].expand_as(plain)),
        "loud and quiet": (norms.quantile(0.9, -1) / norms.quantile(0.1, -1)).mean().item(),
        "moved": (weights - share(weights, norms)).abs().sum(-1).mean().item() / 2,
    }


def share(weights: Tensor, norms: Tensor) -> Tensor:
    """α ‖f‖ as a map whose rows sum to 1, (L, H, T, T)."""
    normed = weights * norms[..., None, :]
    return normed / normed.sum(-1, keepdim=True)


def compute(folder: Path, seed: int) -> dict:
    """Means over TEXTS passages of the validation text; and both maps of the head where they differ most."""
    text = build([*WORDS, f"train.seed={seed}"])[1]
    model = load(checkpoint.find(folder))
    counts = torch.from_numpy(np.bincount(text.train, minlength=text.tokenizer.vocab_size))
    starts = [number * len(text.validation) // TEXTS for number in range(TEXTS)]
    passages = [torch.from_numpy(text.validation[s : s + LENGTH].astype("int64")) for s in starts]
    found = [compare(model, ids, counts) for ids in passages]
    weights, norms = terms(model, passages[0])
    normed = share(weights, norms)
    labels = [text.tokenizer.label(token) for token in passages[0].tolist()]
    with board("values", f"maps-{seed}") as writer:
        log_attention(writer, "attention/weights", weights, labels, 0)
        log_attention(writer, "attention/norms", normed, labels, 0)
    apart = (weights - normed).abs()[..., :DRAWN, :].sum((-2, -1)).flatten()
    most = int(apart.argmax())
    maps = [both.flatten(0, 1)[most, :DRAWN, :DRAWN].tolist() for both in (weights, normed)]
    head = f"L{most // weights.size(1)}H{most % weights.size(1)}"
    means = {name: sum(one[name] for one in found) / TEXTS for name in found[0]}
    return {"means": means, "maps": maps, "labels": labels[:DRAWN], "head": head}


def draw_figure(results: list[dict]) -> None:
    figure, (plain, normed, bars) = panels(3, width=3.9, height=3.6)
    one = results[0]
    style = {"fontsize": 6, "family": "DejaVu Sans Mono", "parse_math": False}
    titles = ("weight α", "norm ‖α v W_O‖")
    for axis, weights, title in zip((plain, normed), one["maps"], titles, strict=True):
        later = np.triu(np.ones((DRAWN, DRAWN), bool), 1)
        image = axis.imshow(np.ma.array(np.sqrt(weights), mask=later), vmin=0, vmax=1, cmap="viridis")
        axis.set(facecolor="#e4e4e4", xlabel="token that is looked at", ylabel="token that looks")
        axis.set_xticks(range(DRAWN), one["labels"], rotation=90, **style)
        axis.set_yticks(range(DRAWN), one["labels"], **style)
        axis.set_title(f"{one['head']}: {title}")
    marks = figure.colorbar(image, ax=normed, shrink=0.8, ticks=[0, 0.5**0.5, 1], label="share of the row")
    marks.ax.set_yticklabels(["0", "0.5", "1"])
    for place, kind in enumerate(("", ", in a head")):
        for shift, name, colour in ((-0.2, "weight", COLOURS[0]), (0.2, "norm", COLOURS[1])):
            values = [result["means"][name + kind] for result in results]
            mean = sum(values) / len(values)
            ends = [[mean - min(values)], [max(values) - mean]]
            label = None if place else f"by {name}"
            bars.bar(place + shift, mean, 0.4, yerr=ends, capsize=3, color=colour, label=label)
    bars.set(title="What does the model rely on?", ylabel="rank correlation with effects", ylim=(0, 1.2))
    bars.set_xticks([0, 1], ["over all heads", "within a head"])
    bars.legend(frameon=False, loc="upper center", ncols=2)
    print("figure ", save_figure(figure, "values"))


def main() -> None:
    results = []
    for seed in SEEDS:
        folder, _ = trained("values", [*WORDS, f"train.seed={seed}"])
        settings = {"of": folder.name, "texts": TEXTS, "length": LENGTH}
        results.append(cached("values", settings, partial(compute, folder, seed)))
    found = {name: spread([result["means"][name] for result in results]) for name in results[0]["means"]}
    print(table(["", "over three seeds"], list(found.items())))
    draw_figure(results)
    say(f"""Within a head the norms are the better guide to what the model relies on: rank correlation
        with the effect of taking a token's terms away {found["norm, in a head"]}, by the weights
        {found["weight, in a head"]}; tokens that get much weight have rather short vectors
        ({found["weight and length"]}). Half true, in so small a model: the two maps differ by
        {found["moved"]} of a row, and over all heads the weights do as well ({found["weight"]}) as the
        norms ({found["norm"]}).""")


if __name__ == "__main__":
    main()
