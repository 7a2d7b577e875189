"""One Linear for q, k and v, or three: python -m studies.fused_qkv        (1 minute)

The same products, cut otherwise: do the numbers agree, and what does it save? Times are medians, one and
three in turn, round after round, so that whatever else the machine does meets both.

Shapes: N tokens, C = d_model.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from studies.common import COLOURS, band, board, cached, panels, save_figure, say, spread, table
from training import products
from training.speed import keep_pages

WIDTHS, TOKENS, ROUNDS, SECONDS = (64, 128, 256, 512, 1024), (1, 1024), 5, 0.1


class Three(nn.Module):
    """The projections of a fused Linear (C → 3C) as three Linears (C → C) with the same weights."""

    def __init__(self, qkv: nn.Linear) -> None:
        super().__init__()
        pieces = qkv.weight.detach().chunk(3)
        self.q, self.k, self.v = (nn.Linear(qkv.in_features, len(piece), bias=False) for piece in pieces)
        for linear, piece in zip((self.q, self.k, self.v), pieces, strict=True):
            linear.weight = nn.Parameter(piece.clone())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.q(x), self.k(x), self.v(x)


class One(nn.Module):
    """The fused Linear, its output (N, 3C) cut into three."""

    def __init__(self, qkv: nn.Linear) -> None:
        super().__init__()
        self.qkv = qkv

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.qkv(x).chunk(3, -1)


def pair(width: int) -> tuple[One, Three]:
    torch.manual_seed(width)
    qkv = nn.Linear(width, 3 * width, bias=False)
    return One(qkv), Three(qkv)


def apart(width: int, tokens: int = 64) -> dict:
    """How far one and three are apart at most: in the outputs, the gradient of x and that of the weights,
    each relative to the largest number there."""
    one, three = pair(width)
    x = torch.randn(tokens, width, requires_grad=True)
    upstream = torch.randn(tokens, 3 * width)
    found = []
    for module in (one, three):
        out = torch.cat(module(x), -1)
        weights = list(module.parameters())
        grad_x, *grads = torch.autograd.grad(out, [x, *weights], upstream)
        found.append((out.detach(), grad_x, torch.cat(grads)))
    names = ("out", "grad_x", "grad_w")
    return {n: ((a - b).abs().max() / a.abs().max()).item() for n, a, b in zip(names, *found, strict=True)}


def seconds(work: Callable[[], object]) -> float:
    """The median time of a call, over SECONDS."""
    taken, ends = [], time.perf_counter() + SECONDS
    while not taken or time.perf_counter() < ends:
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def compute(width: int, tokens: int) -> dict:
    """Seconds of each round: {"forward": {"one": […], "three": […]}, "both": …}; both = with backward."""
    one, three = pair(width)
    x, upstream = torch.randn(tokens, width, requires_grad=True), torch.randn(tokens, width)

    @torch.no_grad()
    def forward(module: nn.Module) -> None:
        module(x)

    def both(module: nn.Module) -> None:
        q, k, v = module(x)
        torch.autograd.backward((q, k, v), (upstream, upstream, upstream))
        module.zero_grad()
        x.grad = None

    times: dict = {"forward": {"one": [], "three": []}, "both": {"one": [], "three": []}}
    for name, work in (("forward", forward), ("both", both)):
        for module in (one, three):
            work(module)  # once before anything is timed
        for _ in range(ROUNDS):
            for which, module in (("one", one), ("three", three)):
                times[name][which].append(seconds(partial(work, module)))
    with board("fused_qkv", f"{tokens}-tokens-{width}-wide") as writer:
        for name, found in times.items():
            for which, rounds in found.items():
                writer.add_scalar(f"milliseconds/{name}/{which}", 1000 * statistics.median(rounds), width)
    return times


def ratios(found: dict) -> list[float]:
    """Time of three / time of one, in each round."""
    return [three / one for one, three in zip(found["one"], found["three"], strict=True)]


def main() -> None:
    keep_pages()
    library, threads = products.choose(), torch.get_num_threads()
    settings = {"library": library, "threads": threads, "torch": torch.__version__, "rounds": ROUNDS}
    print(table(["width", "outputs apart", "∇x apart", "∇W apart"],
                [[width, *(f"{value:.0e}" for value in apart(width).values())] for width in WIDTHS]), "\n")
    times = {
        (tokens, width): cached("fused_qkv", settings | {"tokens": tokens, "width": width},
                                partial(compute, width, tokens))
        for tokens in TOKENS for width in WIDTHS
    }
    rows = []
    for (tokens, width), found in times.items():
        taken = (f"{1000 * statistics.median(found['both'][which]):.3g}" for which in ("one", "three"))
        times_three = (spread(ratios(found[name]), 2) for name in ("forward", "both"))
        rows.append([f"{tokens:,}, {width}", *taken, *times_three])
    print(f"{threads} thread{'s' * (threads > 1)}, products by {library}")
    header = ["tokens, width", "one, ms", "three, ms", "three / one, forward", "three / one, with backward"]
    print(table(header, rows))
    figure, axes = panels(2, width=4.2)
    styles = (("forward", "forward", COLOURS[0]), ("both", "forward and backward", COLOURS[1]))
    for axis, tokens in zip(axes, TOKENS, strict=True):
        for name, label, colour in styles:
            runs = list(zip(*(ratios(times[tokens, width][name]) for width in WIDTHS), strict=True))
            band(axis, WIDTHS, runs, label=label, color=colour, marker="o")
        axis.axhline(1, color="#888888", linewidth=0.8)
        axis.set(title=f"{tokens:,} token{'s' * (tokens > 1)} at a time", xlabel="d_model")
        axis.set(ylabel="time of three / time of one")
        axis.set(xscale="log", xticks=WIDTHS, xticklabels=WIDTHS, ylim=(0, None))
        axis.minorticks_off()
        axis.legend(frameon=False)
    print("figure ", save_figure(figure, "fused_qkv"))
    ends = (TOKENS[0], WIDTHS[0]), (TOKENS[-1], WIDTHS[-1])
    small, large = (spread(ratios(times[end]["both"]), 2) for end in ends)
    say(f"""One and three give the same numbers to rounding. Three take {small} times as long where there
        is little to multiply (one token, {WIDTHS[0]} wide), since three calls cost more than one, and
        {large} times where there is much ({TOKENS[-1]:,} tokens, {WIDTHS[-1]} wide): the products
        themselves are no fewer.""")


if __name__ == "__main__":
    main()
