"""How heads specialise, watched: python -m studies.circuit        (4 minutes)

A tiny decoder reads random tokens that repeat, where nothing helps but to look back. A head of the first
layer learns to look at the previous token; then one of the second layer, which can ask "who follows what I
am?", looks at what followed the current token last time: an induction circuit (Olsson et al. 2022, arXiv
2209.11895). Neither is of use without the other, so for a long time nothing happens, and then everything.

Shapes: B sequences, T tokens, L layers, H heads.
"""

from dataclasses import asdict
from itertools import pairwise

import torch
from torch import Tensor

from dashboard import evidence, heads, log_attention
from model.gpt import GPT
from model.noise import mix
from studies.common import COLOURS, band, board, cached, fit, panels, save_figure, say, spread, table
from train import configure

SEEDS, LENGTH, VOCABULARY, PROBES, EVERY = (1, 2, 3), 64, 64, 4, 10
WORDS = [
    "train.device=cpu", "model.n_layers=2", "model.d_model=64", f"model.context_length={LENGTH}",
    "train.batch_size=32", "train.max_steps=400",
]
PLAIN = "model.qk_norm=false"  # the note's attention
MODELS = {  # heads × d_k
    "4 × 16": ["model.n_heads=4", PLAIN], "1 × 64": ["model.n_heads=1", PLAIN],
    "16 × 4": ["model.n_heads=16", PLAIN], "4 × 16, QK-norm": ["model.n_heads=4"],
}
SHOWN = "4 × 16"
SCORES = (("previous", COLOURS[4], "previous token"), ("induction", COLOURS[2], "induction"))


def repeats(step: int, seed: int, batch: int = 32) -> tuple[Tensor, Tensor]:
    """x and y (B, T): 8 to 32 random tokens, all different, over and over; how many differs by row, so that
    counting does not help."""
    generator = torch.Generator().manual_seed(mix(seed, step))
    pattern = torch.rand(batch, VOCABULARY, generator=generator).argsort(-1)
    period = torch.randint(8, 33, (batch, 1), generator=generator)
    rows = pattern.gather(1, torch.arange(LENGTH + 1) % period)
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def looked_at(model: GPT, ablate: bool) -> dict:
    """Means over a few sequences of 32 random tokens and the same again: the loss on either copy, and for
    every head (L, H) two scores and, if `ablate`, by how many nats the loss rises without it."""
    found = []
    for probe in range(PROBES):
        ids = heads.repeated_tokens(VOCABULARY, LENGTH, probe)
        weights, loss = evidence.look(model, ids)
        scores = heads.scores(weights, ids)
        half = LENGTH // 2
        found.append({
            "first": loss[: half - 1].mean(), "second": loss[half:].mean(),
            "previous": scores["previous_token"], "induction": scores["induction"],
        } | ({"ablation": evidence.ablation(model, ids)} if ablate else {}))
    return {key: torch.stack([one[key] for one in found]).mean(0) for key in found[0]}


def formation(name: str, seed: int) -> list[dict]:
    """Train on repeats; what `looked_at` finds every few steps."""
    config = configure([*MODELS[name], f"train.seed={seed}", *WORDS])
    settings = {"config": asdict(config), "every": EVERY, "probes": PROBES}

    def compute() -> dict:
        torch.manual_seed(mix(seed))
        model, history = GPT(VOCABULARY, config.model, config.position), []
        with board("circuit", f"{name}, seed {seed}") as writer:

            def look(step: int, loss: float) -> None:
                if step % EVERY == 0:
                    found = looked_at(model.eval(), ablate=name == SHOWN)
                    history.append({"step": step} | {key: value.tolist() for key, value in found.items()})
                    write(writer, model, step, found)
                    model.train()

            fit(config, model, lambda step: repeats(step, seed), look)
        return {"history": history}

    return cached("circuit", settings, compute)["history"]


def write(writer, model: GPT, step: int, found: dict) -> None:
    """The curves for TensorBoard, and sometimes the maps."""
    for key in ("first", "second"):
        writer.add_scalar(f"repeats/loss_{key}_copy", found[key], step)
    for key in ("previous", "induction"):
        for layer, most in enumerate(found[key].amax(1)):
            writer.add_scalar(f"heads/{key}/max_L{layer}", most, step)
    if step % (5 * EVERY) == 0:
        ids = heads.repeated_tokens(VOCABULARY, LENGTH, 0)
        weights, loss = evidence.look(model, ids)
        more = {"loss": loss, "ablation": found.get("ablation")}
        log_attention(writer, "attention/repeats", weights, ids.tolist(), step, **more)


def most(history: list[dict], key: str) -> list[float]:
    """The largest of a score over all heads, at each look."""
    return [max(map(max, row[key])) for row in history]


def reached(history: list[dict], key: str) -> int | None:
    """The first step at which some head's score was one half (dashboard.heads.CLEAR)."""
    pairs = zip(history, most(history, key), strict=True)
    return next((row["step"] for row, score in pairs if score >= heads.CLEAR), None)


def steepest(history: list[dict]) -> int:
    """The step at which the loss on the second copy had fallen the most since the look before."""
    falls = {after["step"]: before["second"] - after["second"] for before, after in pairwise(history)}
    return max(falls, key=falls.get)


def draw(found: dict[str, list[list[dict]]]) -> None:
    figure, (copy, score, without, models) = panels(2, 2, 4.8)
    for seed, history in enumerate(found[SHOWN]):
        steps, lines = [one["step"] for one in history], []
        for key, colour in (("first", "#888888"), ("second", COLOURS[0])):
            lines.append((copy, [one[key] for one in history], colour, f"{key} copy"))
        for key, colour, label in SCORES:
            lines.append((score, most(history, key), colour, label))
            last = torch.tensor(history[-1][key])
            layer, head = divmod(int(last.argmax()), last.size(1))
            lines.append((without, [one["ablation"][layer][head] for one in history], colour, label))
        for axis, values, colour, label in lines:
            axis.plot(steps, values, color=colour, label=None if seed else label, lw=1.2)
    for number, (name, runs) in enumerate(found.items()):
        steps, curves = [one["step"] for one in runs[0]], [[one["second"] for one in run] for run in runs]
        band(models, steps, curves, color=COLOURS[number], label=name)
    copy.set(title=f"The loss (heads {SHOWN}, 3 seeds)", ylabel="loss (nats a token)", ylim=0)
    score.set(title="At the same moment: two heads", ylabel="best score of a head", ylim=(0, 1))
    without.set(title="What the two heads are worth", ylabel="loss rises without it by (nats)")
    models.set(title="Heads × d_k: who forms it, and when", ylabel="loss on the second copy (nats)", ylim=0)
    for axis in (copy, score, without, models):
        axis.set(xlabel="step")
        axis.legend(frameon=False)
    print("figure ", save_figure(figure, "circuit"))


def main() -> None:
    found = {name: [formation(name, seed) for seed in SEEDS] for name in MODELS}
    rows = []
    for name, runs in found.items():
        moments = [(reached(run, "previous"), reached(run, "induction"), steepest(run)) for run in runs]
        moments = [moment if moment[1] else (None,) * 3 for moment in moments]
        steps = [" ".join(str(step or "–") for step in each) for each in zip(*moments, strict=True)]
        losses = [spread([run[-1][copy] for run in runs], 2) for copy in ("first", "second")]
        rows.append([name, *steps, *losses])
    header = ["heads × d_k", "previous ≥ ½", "induction ≥ ½", "steepest fall", "1st copy", "2nd copy"]
    print("Steps, by seed, and the loss at the end.\n")
    print(table(header, rows), "\n")
    draw(found)
    say(f"""With heads {SHOWN} nothing happens for long; then a previous-token head and an induction head
        appear together, and just then the loss on the second copy falls. One head of d_k = 64 does it
        as well, and sooner; sixteen of d_k = 4 do not.""")


if __name__ == "__main__":
    main()
