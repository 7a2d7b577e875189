"""Five ways to tell a decoder where a token stands: python -m studies.positions        (6 minutes)

The same decoder with the same budget, on windows of 64 tokens, five times over: no positions, sinusoidal,
learned, RoPE, ALiBi. Then the validation text is read in windows of 64, 128, 256 and 512 tokens, which nobody
was trained for: the same tokens are guessed each time, only with more before them, so that whoever carries on
gets better, or at least no worse.

And RoPE's scores by distance: of a key with itself, of unrelated queries and keys, and of trained heads.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from model.config import POSITIONS, ModelConfig, PositionConfig
from model.gpt import GPT
from model.position import RoPE
from model.weights import load
from studies.common import COLOURS, band, build, cached, panels, save_figure, say, spread, table, trained
from training import checkpoint

LENGTH, TIMES, SEEDS, STEPS, BIN = 64, (1, 2, 4, 8), (1, 2, 3), 400, 16
WORDS = [
    "train.device=cpu", "tokenizer.vocab_size=512", "model.n_layers=2", f"model.context_length={LENGTH}",
    f"train.max_steps={STEPS}", f"train.eval_every={STEPS}", f"train.checkpoint_every={STEPS}",
    "log.attention_every=0", "log.sample_every=0",
]
AS_PUBLISHED = "sinusoidal as published"  # embeddings times √C, and no norm right after the sum
KINDS = {name: [f"position={name}"] for name in POSITIONS}
KINDS[AS_PUBLISHED] = ["position=sinusoidal", "model.embed_norm=false"]
LOOK = dict(zip(KINDS, zip(COLOURS, "osD^vs", strict=False), strict=True))


def windows(tokens, length: int) -> tuple[Tensor, Tensor]:
    """x and y (B, length): the validation text, as far as it fills windows of the longest kind."""
    longest = LENGTH * TIMES[-1]
    n = (len(tokens) - 1) // longest * longest
    ids = torch.from_numpy(tokens[: n + 1].astype("int64"))
    return ids[:-1].view(-1, length), ids[1:].view(-1, length)


@torch.no_grad()
def by_position(model: GPT, x: Tensor, y: Tensor) -> Tensor:
    """(length,): mean loss at each position of the windows, in nats."""
    total = torch.zeros(x.size(1))
    for ids, targets in zip(x.split(16), y.split(16), strict=True):
        total += F.cross_entropy(model(ids).transpose(1, 2), targets, reduction="none").sum(0)
    return total / len(x)


@torch.no_grad()
def head_scores(model: GPT, x: Tensor) -> Tensor:
    """(L, H, LENGTH / 2): the mean score by distance, up to a constant a head. The logarithm of a weight is
    the score less the logarithm of its row's sum; the rows are those that have all these distances."""
    half = LENGTH // 2
    logs = model.attention_maps(x)[..., half:, :].clamp(min=1e-30).log().mean(1)  # (L, H, half, LENGTH)
    by_distance = [logs.diagonal(half - d, dim1=-2, dim2=-1).mean(-1) for d in range(half)]
    return torch.stack(by_distance, -1)


def rope_scores(d_head: int, distances: int, draws: int = 4000) -> tuple[Tensor, Tensor, Tensor]:
    """q·k / √D of normally distributed q and k (D = d_head) at distances 0 …: its mean where k = q, and its
    mean and standard deviation where they have nothing to do with each other; (distances,) each."""
    torch.manual_seed(0)
    config = ModelConfig(n_heads=1, d_model=d_head, context_length=distances)
    q, k = torch.randn(2, draws, 1, 1, d_head)
    turn = RoPE(config, PositionConfig("rope")).rotation(torch.empty(1, distances, d_head), 0)
    away = turn(q.expand(-1, -1, distances, -1))  # the query at 0 … distances − 1, its key at 0
    same, other = ((away * key).sum(-1)[:, 0] / d_head**0.5 for key in (q, k))
    return same.mean(0), other.mean(0), other.std(0)


def measured(kind: str, seed: int) -> dict:
    """Losses of a trained decoder by the length of the windows, and by position in the longest."""
    words = [*KINDS[kind], f"train.seed={seed}", *WORDS]
    folder, state = trained("positions", words)

    def compute() -> dict:
        model, text = load(checkpoint.find(folder)), build(words)[1]
        scores = head_scores(model, windows(text.validation, LENGTH)[0][:256])
        result = {"lengths": [], "by_position": [], "refused": "", "scores": scores.tolist()}
        for times in TIMES:
            try:
                loss = by_position(model, *windows(text.validation, times * LENGTH))
            except ValueError as error:
                result["refused"] = str(error)
                break
            result["lengths"].append(loss.mean().item())
            result["by_position"] = loss.view(-1, BIN).mean(1).tolist()  # in the longest
        return result

    settings = {"of": folder.name, "times": TIMES, "bin": BIN}
    return {"loss": state["val_loss"]} | cached("positions", settings, compute)


def draw(found: dict[str, list[dict]]) -> None:
    figure, (length, position, pure, trained_heads) = panels(2, 2, 4.8)
    lengths = [times * LENGTH for times in TIMES]
    for name, some in found.items():
        colour, marker = LOOK[name]
        style = {"color": colour, "marker": marker, "ms": 4, "label": name}
        band(length, lengths[: len(some[0]["lengths"])], [one["lengths"] for one in some], **style)
        bins = [one["by_position"] for one in some]
        band(position, [BIN * (i + 0.5) for i in range(len(bins[0]))], bins, **style | {"markevery": 8})
    for axis in (length, position):
        axis.axvline(LENGTH, color="#888888", lw=0.8, ls=":")
        axis.set(ylabel="validation loss (nats a token)", ylim=(2.6, 6.4))
    length.set(title="The same text in longer windows", xlabel="tokens in a window (trained on 64)")
    length.set_xscale("log", base=2)
    length.set_xticks(lengths, [str(tokens) for tokens in lengths])
    position.set(title="Where in the window it goes wrong", xlabel=f"position in a window of {lengths[-1]}")
    length.legend(frameon=False, ncols=2, loc="upper left")
    same, other, deviation = rope_scores(32, 97)
    pure.plot(same, color=COLOURS[0], label="k = q: mean")
    few, other, deviation = range(0, 97, 8), other[::8], deviation[::8]
    pure.plot(few, other, color=COLOURS[1], label="unrelated q, k: mean ± deviation")
    pure.fill_between(few, other - deviation, other + deviation, color=COLOURS[1], alpha=0.2, lw=0)
    pure.set(title="RoPE by itself (random vectors, d_k = 32)", xlabel="distance (tokens)")
    pure.set(ylabel="score q·k / √d_k")
    pure.legend(frameon=False)
    curves = torch.tensor(found["rope"][0]["scores"]).flatten(0, 1)  # (L·H, distances)
    for head, curve in enumerate(curves - curves[:, :1]):
        layer, first = divmod(head * 2, len(curves))
        trained_heads.plot(curve, color=COLOURS[layer], lw=1, label=None if first else f"layer {layer}")
    trained_heads.legend(frameon=False)
    trained_heads.set(title="The heads of a RoPE decoder, trained", xlabel="distance (tokens)")
    trained_heads.set(ylabel="mean score − that at distance 0")
    print("figure ", save_figure(figure, "positions"))


def main() -> None:
    found = {kind: [measured(kind, seed) for seed in SEEDS] for kind in KINDS}
    rows = []
    for kind, some in found.items():
        by_length = zip(*(one["lengths"] for one in some), strict=True)
        row = [kind, *(spread(losses, 2) for losses in by_length)]
        rows.append(row + ["undefined"] * (len(TIMES) + 1 - len(row)))
    print(table(["nats a token, in windows of", *(str(times * LENGTH) for times in TIMES)], rows))
    print("\nlearned:", found["learned"][0]["refused"], "\n")
    draw(found)
    ends = {}
    for kind, some in found.items():
        ends[kind] = spread([one["lengths"][-1] - one["lengths"][0] for one in some], 2)
    say(f"""Everything but learned positions can be computed beyond the trained length, which is not enough:
        in windows {TIMES[-1]} times as long the loss changes by {ends[AS_PUBLISHED]} nats with sinusoids as
        published, by {ends["rope"]} with RoPE, by {ends["alibi"]} with ALiBi. RoPE's scores fall with
        distance where key and query are alike; where the two are unrelated, no distance is farther.""")


if __name__ == "__main__":
    main()
