"""What is looked at while a model trains, and when.

    each step          a line in metrics.jsonl, a point on the curves (after the first hundred: every tenth)
    eval_every         the loss on the whole validation split; a checkpoint if it is best
    attention_every    what every head does with two probes, for the Attention tab; more often early on, when
                       heads form. At evaluations also what each head is worth, and at a few of them images
    sample_every       text that the model writes
    checkpoint_every   everything it takes to go on
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.optim import Optimizer

from dashboard import evidence, heads
from dashboard.logger import Logger
from dashboard.recording import plain
from dashboard.terminal import Progress
from data.batches import validation_windows
from data.store import TokenStore
from model.generate import Sampling, generate
from model.gpt import GPT
from settings import save_config
from training import checkpoint, speed
from training.distributed import World
from training.evaluate import bits_per_byte, evaluate
from training.step import NotFinite
from training.stopping import State

PROBE_TOKENS = 128
DRAWN_TOKENS = 32  # what a picture has room for
DRAWINGS = 3  # in a run: eight pictures take as long as a few training steps, and the tab has all steps
EVAL_TOKENS = 8192  # in a batch of validation: large batches are quick
SOON = 20  # such batches; a person who waits for more is told
SAMPLE_TOKENS = 200
ABOUT = {
    "text": "How the validation text begins.",
    "repeats": "Random tokens, then the same again: only who looks back can foresee the second half.",
}


def steps_to_look(max_steps: int, every: int, most: int = 64) -> set[int]:
    """0, 1, 2, 5, 10, 20, 50, … below `every`, then its multiples (of a multiple of it, where they would
    be more than `most`), and the last step."""
    if not every:
        return set()
    early = {0} | {digit * 10**power for power in range(9) for digit in (1, 2, 5)}
    early = {step for step in early if step < min(every, max_steps)}
    every *= max(1, -(-max_steps // (every * (most - 1 - len(early)))))
    return early | set(range(every, max_steps, every)) | {max_steps}


def spread(steps: Iterable[int], most: int) -> set[int]:
    """At most `most` of the steps, evenly, the first and the last among them."""
    ordered = sorted(steps)
    return {ordered[i * (len(ordered) - 1) // (most - 1)] for i in range(most)} if ordered else set()


class Companion:
    """What every process of a run does besides steps: its share of each evaluation."""

    def __init__(self, config, folder: Path, text: TokenStore, world: World) -> None:
        self.config, self.folder, self.text, self.world = config, folder, text, world
        self.sample = ""

    def __enter__(self) -> "Companion":
        return self

    def __exit__(self, *error) -> None:
        pass

    def stepped(self, state: State, loss: float, norm: float, lr: float) -> None:
        """After a training step."""

    def look(self, model: GPT, optimizers: list[Optimizer], state: State) -> None:
        """Before the first step and after each: whatever is due."""
        if self.due(self.config.train.eval_every, state.step):
            self.evaluate(model, state)

    def finish(self, model: GPT, optimizers: list[Optimizer], state: State, hurry: bool) -> None:
        """After the last step: what the regular intervals have not done. In a `hurry` only save."""
        saved = self.world.told(checkpoint.folder_of(self.folder, state.step).exists())
        if not (hurry or saved or state.val_step == state.step):
            self.evaluate(model, state)

    def due(self, every: int, step: int) -> bool:
        return bool(every) and (step % every == 0 or step == self.config.train.max_steps)

    def evaluate(self, model: GPT, state: State) -> bool:
        """The loss of the whole validation split; True when it is the best so far."""
        train, length = self.config.train, self.config.model.context_length
        windows = validation_windows(self.text.validation, length, EVAL_TOKENS)
        training = model.training
        model.eval()
        nats = evaluate(model, windows, device=train.device, dtype=train.dtype, world=self.world)
        model.train(training)  # whoever looks on is in eval mode still
        if not math.isfinite(nats):
            raise NotFinite(f"step {state.step}: val loss {nats}")
        return state.evaluated(nats)


class Watch(Companion):
    """Looks at a model in training and writes what it sees into the run's folder; leaving closes it.

    `started` is the time.perf_counter() reading from which `wall` counts.
    """

    def __init__(
        self, config, folder: Path, text: TokenStore, world: World, model: GPT, state: State, started: float
    ) -> None:
        super().__init__(config, folder, text, world)
        self.probes = make_probes(text, min(PROBE_TOKENS, config.model.context_length))
        self.drawn = make_probes(text, min(DRAWN_TOKENS, config.model.context_length))
        self.looks = steps_to_look(config.train.max_steps, config.log.attention_every)
        evaluations = {step for step in self.looks if self.due(config.train.eval_every, step)}
        self.draws = spread(evaluations, DRAWINGS)
        self.operations = speed.operations(model)
        self.peak = speed.matrix_peak(config.train.device, config.train.dtype) * world.size
        # What a lost process looked at before the first step is looked at again.
        self.logger = Logger(folder, resume_step=(state.step or -1) if config.resume else None)
        self.logger.config((folder / "config.yaml").read_text(encoding="utf-8"))
        self.progress = Progress(config.train.max_steps)
        self.started = started - state.wall  # as if earlier processes had been this one
        self.aside = 0.0  # seconds of looking, which are on neither clock
        self.looking: float | None = None  # since when
        self.logged = (state.tokens, state.seconds)
        self.rate: float | None = None  # tokens a second

    def __exit__(self, *error) -> None:
        self.logger.close()

    def write(self, state: State, values: dict[str, float]) -> None:
        """A line of metrics, with the clocks."""
        state.wall = (self.looking or time.perf_counter()) - self.started - self.aside
        clocks = {"seconds": round(state.seconds, 3), "wall": round(state.wall, 3)}
        self.logger.scalars(state.step, values, tokens=state.tokens, **clocks)

    def stepped(self, state: State, loss: float, norm: float, lr: float) -> None:
        if state.step <= 100 or state.step % 10 == 0:
            tokens, seconds = self.logged
            self.logged = state.tokens, state.seconds
            self.rate = (state.tokens - tokens) / (state.seconds - seconds)
            speeds = {"tokens_per_second": self.rate, "mfu": self.rate * self.operations / self.peak}
            speeds["memory"] = speed.most_memory(self.config.train.device) / 2**20  # MiB at most so far
            values = {"train/loss": loss, "train/lr": lr, "train/grad_norm": norm}
            self.write(state, values | {f"speed/{name}": value for name, value in speeds.items()})
        self.progress.step(state.step, loss, self.rate)

    def look(self, model: GPT, optimizers: list[Optimizer], state: State) -> None:
        train, log, step = self.config.train, self.config.log, state.step
        best, evaluated = False, self.due(train.eval_every, step)
        with self.aside_in_eval_mode(model):
            if evaluated:
                best = self.evaluate(model, state)
            if step in self.looks:
                scores = self.look_at_heads(model, state, evaluated)
            if step in self.draws:  # some of the looks
                self.draw(model, state, scores)
            if self.due(log.sample_every, step):
                self.write_sample(model, state)
            if best or self.due(train.checkpoint_every, step):
                self.save(model, optimizers, state, best)

    def finish(self, model: GPT, optimizers: list[Optimizer], state: State, hurry: bool) -> None:
        with self.aside_in_eval_mode(model):
            best = state.best_step
            super().finish(model, optimizers, state, hurry)
            untrained = hurry and not (best or self.config.init_from)  # nothing else was evaluated yet
            self.save(model, optimizers, state, untrained or best != state.best_step)
            self.sample = "" if untrained else self.sample

    @contextmanager
    def aside_in_eval_mode(self, model: GPT):
        self.looking = time.perf_counter()
        model.eval()
        yield
        model.train()
        self.aside += time.perf_counter() - self.looking
        self.looking = None

    def evaluate(self, model: GPT, state: State) -> bool:
        if (tokens := len(self.text.validation)) > SOON * EVAL_TOKENS:
            self.progress.say(f"evaluating on {tokens:,} tokens, the whole validation split")
        best, text = super().evaluate(model, state), self.text
        nats, targets = state.val_loss, len(text.validation) - 1
        bits = bits_per_byte(nats, targets, text.bytes["validation"], text.unknown_bytes)
        self.write(state, {"val/loss": nats, "val/bpb": bits})
        self.progress.evaluated(state.step, nats, best, self.rate)
        if self.config.log.histograms:
            self.logger.histograms(state.step, {f"weights/{n}": p for n, p in model.named_parameters()})
        return best

    def look_at_heads(self, model: GPT, state: State, ablate: bool) -> dict[str, Tensor]:
        """What every head does with the probes, for the tab and in numbers; if `ablate`, also its worth."""
        read = {}
        for name, ids in self.probes.items():
            ids = ids.to(self.config.train.device)
            weights, loss = evidence.look(model, ids)
            read[name] = heads.scores(weights, ids)
            known = {"scores": read[name], "loss": loss, "about": ABOUT[name]}
            known["ablation"] = evidence.ablation(model, ids) if ablate else None
            known["gain"] = evidence.induction_gain(loss) if name == "repeats" else None
            try:
                self.logger.maps(state.step, name, weights, self.labels_of(ids), **known)
            except ValueError as error:  # more heads than there is room for, or weights that have overflowed
                self.progress.say(f"no maps for the Attention tab: {error}")
        scores = heads.probe_scores(read)
        self.write(state, heads.layer_maxima(scores))
        state.heads.append([state.step, {name: plain(score) for name, score in scores.items()}])
        return scores

    def draw(self, model: GPT, state: State, scores: dict[str, Tensor]) -> None:
        """Images of what every head does with two shorter probes, for those without the tab."""
        for name, ids in self.drawn.items():
            weights, _ = evidence.look(model, ids.to(self.config.train.device))
            self.logger.attention(state.step, name, weights, self.labels_of(ids), scores)

    def labels_of(self, ids: Tensor) -> list[str]:
        return [self.text.tokenizer.label(token) for token in ids.tolist()]

    def write_sample(self, model: GPT, state: State) -> None:
        """What the model writes by itself, up to the end of a text: as sample.py, without more words."""
        end = self.text.tokenizer.end_of_text
        prompt = torch.tensor([[state.start]], device=self.config.train.device)
        sampling = Sampling(temperature=0.8, min_p=0.1)
        drawn = [int(ids) for ids in generate(model, prompt, SAMPLE_TOKENS, sampling, seed=1, end=end)]
        self.sample = self.text.tokenizer.decode(drawn[:-1] if drawn[-1] == end else drawn)
        self.logger.sample(state.step, "", self.sample)

    def save(self, model: GPT, optimizers: list[Optimizer], state: State, best: bool) -> None:
        """A checkpoint; what is logged must not be younger than what can be gone on from."""
        self.logger.flush()
        saved = checkpoint.save(self.folder, model, optimizers, state)
        if best:
            checkpoint.mark_best(saved)
        checkpoint.prune(self.folder, self.config.train.keep)


def make_probes(text: TokenStore, length: int) -> dict[str, Tensor]:
    """Two texts (length,): a fixed passage of the validation text, and random tokens, repeated."""
    end = text.tokenizer.end_of_text
    repeats = heads.repeated_tokens(text.tokenizer.vocab_size, length, 0, () if end is None else (end,))
    return {"text": torch.from_numpy(text.validation[:length].astype("int64")), "repeats": repeats}


def heads_in_words(state: State) -> list[str]:
    """What the heads do at the last look, and since when."""
    history = [(step, {n: torch.tensor(s) for n, s in scores.items()}) for step, scores in state.heads]
    return heads.describe(history)


def announce(folder: Path, say: Callable[[str], None]) -> None:
    """What to open, and what to look for."""
    say(f"run      {folder}")
    say(f"open     tensorboard --logdir {folder.resolve().parent}")
    say("watch    Scalars, filtered by loss: train and val fall together, or the model learns by heart")
    say("         Attention: a bright line below the diagonal is a head that looks at the token before")
    say("         Text: what the model writes, from noise to sentences")


def begin(config, folder: Path, text: TokenStore, words: Sequence[str]) -> None:
    """Write what a run's folder holds from the start: its tokenizer and its settings, which make it a run."""
    if not config.resume:
        text.tokenizer.save(folder / "tokenizer.json")
    save_config(config, folder / "config.yaml", " ".join(["python train.py", *words]))
