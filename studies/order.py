"""Attention is blind to order: python -m studies.order        (5 minutes)

Shuffle the tokens, and attention without positions gives the same answers, shuffled: it is permutation-
equivariant, exactly. A causal mask breaks that, but in one layer only by telling each token *which* tokens
came before it, as a bag; from the second layer on, tokens that have seen different bags differ, and so order
can be learned without any positions (Haviv et al. 2022, arXiv 2203.16634). How much of it?

Shapes: B windows, T tokens, C features.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from data.batches import validation_windows
from model.attention import MultiHeadAttention
from model.config import ModelConfig, PositionConfig
from model.gpt import GPT
from model.weights import load
from studies.common import band, build, cached, panels, save_figure, say, spread, table, trained
from training import checkpoint

DEPTHS, POSITIONS, SEEDS, STEPS, LENGTH = (1, 2, 4), ("none", "rope"), (1, 2, 3), 400, 64
WORDS = [
    "train.device=cpu", "tokenizer.vocab_size=512", "model.d_model=64", f"model.context_length={LENGTH}",
    f"train.eval_every={STEPS}", f"train.checkpoint_every={STEPS}", f"train.max_steps={STEPS}",
    "log.attention_every=0", "log.sample_every=0",
]


def shuffling(layers: int = 0, causal: bool = False, T: int = 32) -> tuple[float, float]:
    """(a, b), in float64 and relative to the largest output: a = how far f(shuffled x) is from shuffled f(x);
    b = how far the last token's output moves when only those before it are shuffled. f is one attention with
    random weights (layers=0), or a decoder of so many layers without positions."""
    torch.manual_seed(0)
    if layers:
        model = GPT(50, ModelConfig(n_layers=layers, d_model=64), PositionConfig("none")).double()
        x, f = torch.randint(50, (1, T)), model
    else:
        model = MultiHeadAttention(64, 4).double()
        x, f = torch.randn(1, T, 64).double(), lambda x: model(x, causal=causal)
    with torch.no_grad():
        for parameter in model.parameters():  # those that a decoder starts at zero would hide everything
            parameter.normal_(std=0.3)
        y = f(x)
        order, before = torch.randperm(T), torch.cat((torch.randperm(T - 1), torch.tensor([T - 1])))
        everything = (f(x[:, order]) - y[:, order]).abs().max() / y.abs().max()
        last = (f(x[:, before])[:, -1] - y[:, -1]).abs().max() / y.abs().max()
    return everything.item(), last.item()


def windows(text) -> tuple[Tensor, Tensor]:
    """All whole validation windows at once: x and y (B, T)."""
    pairs = [pair for pair in validation_windows(text.validation, LENGTH, 8192) if pair[0].size(1) == LENGTH]
    return tuple(torch.cat(part) for part in zip(*pairs, strict=True))


@torch.no_grad()
def shuffled_rise(model: GPT, x: Tensor, y: Tensor) -> float:
    """By how many nats the guess after the last token of a window gets worse when the tokens before that
    last one are shuffled: what their order was worth."""
    generator = torch.Generator().manual_seed(0)
    order = torch.rand(len(x), LENGTH - 1, generator=generator).argsort(-1)
    mixed = torch.cat((x[:, :-1].gather(1, order), x[:, -1:]), 1)
    natural, other = (F.cross_entropy(model(ids)[:, -1], y[:, -1]).item() for ids in (x, mixed))
    return other - natural


@torch.no_grad()
def position_known(model: GPT, x: Tensor) -> list[float]:
    """R², on unseen windows, of the linear map that best tells a token's position in the window from its
    features: after the embedding, then after each block. 1 = exactly, 0 = no better than the middle."""
    states: list[Tensor] = []
    places = [*model.blocks, model.norm]
    hooks = [at.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0])) for at in places]
    model(x)
    for hook in hooks:
        hook.remove()
    target = torch.linspace(-1, 1, LENGTH).expand(len(x), LENGTH)
    half = len(x) // 2

    def explained(state: Tensor) -> float:
        rows = torch.cat((state, torch.ones(*state.shape[:2], 1)), -1)  # (B, T, C + 1)
        wanted = target[:half].reshape(-1, 1)
        found = torch.linalg.lstsq(rows[:half].flatten(0, 1), wanted).solution
        error = (rows[half:] @ found)[..., 0] - target[half:]
        return (1 - error.square().mean() / target.square().mean()).item()

    return [explained(state) for state in states]


def measured(layers: int, position: str, seed: int) -> dict:
    """A trained decoder's loss, what order is worth to it, and where it knows positions."""
    words = [f"model.n_layers={layers}", f"position={position}", f"train.seed={seed}", *WORDS]
    folder, state = trained("order", words)

    def compute() -> dict:
        model = load(checkpoint.find(folder))
        x, y = windows(build(words)[1])
        return {"rise": shuffled_rise(model, x, y), "known": position_known(model, x[:400])}

    return {"loss": state["val_loss"]} | cached("order", {"of": folder.name}, compute)


def draw(found: dict[tuple[str, int], list[dict]]) -> None:
    figure, (loss, rise, known) = panels(3)
    styles = {"none": ("no positions", "#D55E00", "o"), "rope": ("RoPE", "#0072B2", "s")}
    for position, (label, colour, marker) in styles.items():
        style = {"label": label, "color": colour, "marker": marker}
        for axis, key in ((loss, "loss"), (rise, "rise")):
            runs = zip(*([one[key] for one in found[position, layers]] for layers in DEPTHS), strict=True)
            band(axis, DEPTHS, list(runs), **style)
            axis.set(xlabel="layers", xticks=DEPTHS)
        deepest = [one["known"] for one in found[position, DEPTHS[-1]]]
        band(known, range(len(deepest[0])), deepest, **style)
    loss.set(title="How well it predicts", ylabel="validation loss (nats a token)")
    rise.set(title="What the order of the context is worth", ylabel="loss when shuffled − loss (nats)")
    known.set(title=f"Does it know where it is? ({DEPTHS[-1]} layers)", ylim=(-0.05, 1.05))
    known.set(xlabel="after … blocks (0: embedding)", ylabel="position told linearly, R²")
    loss.legend(frameon=False)
    print("figure ", save_figure(figure, "order"))


def main() -> None:
    rows = []
    for name, setting in {
        "one attention, no mask": {}, "one attention, causal mask": {"causal": True},
        "decoder of 1 layer, causal mask": {"layers": 1}, "decoder of 2 layers, causal mask": {"layers": 2},
    }.items():
        rows.append([name, *(f"{difference:.0e}" for difference in shuffling(**setting))])
    print(table(["random weights, no positions", "all shuffled", "all but the last shuffled"], rows), "\n")
    found = {(p, n): [measured(n, p, seed) for seed in SEEDS] for p in POSITIONS for n in DEPTHS}
    rows = []
    for (position, layers), some in found.items():
        losses, rises = ([round(one[key], 6) + 0.0 for one in some] for key in ("loss", "rise"))  # no −0.000
        known = [one["known"][-1] for one in some]
        rows.append([f"{position}, {layers}", spread(losses), spread(rises), spread(known, 2)])
    print(table(["positions, layers", "val loss", "rise when shuffled", "R² of position"], rows), "\n")
    draw(found)
    without, rope = ([one["rise"] for one in found[p, DEPTHS[-1]]] for p in POSITIONS)
    say(f"""Without a mask, shuffling the tokens shuffles the answers and nothing else; with a causal mask,
        one layer without positions still sees a bag, and the order of the context is worth nothing to it.
        {DEPTHS[-1]} layers learn some order without positions, worth {spread(without)} nats; RoPE gets
        {spread(rope)} out of it at the same budget.""")


if __name__ == "__main__":
    main()
