"""Train a small GPT on text, and watch it in TensorBoard: tensorboard --logdir runs

  python train.py                                     on the documentation that Python ships, a few minutes
  python train.py data=file data.path=my.txt          on your own text: a file, a folder or a glob
  python train.py model=tiny position=alibi train.max_steps=2000
  python train.py -m position=rope,learned,none       a sweep: a run for each
  python train.py resume=latest                       go on after Ctrl-C
"""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import command
from dashboard.config import LogConfig
from data.config import DataConfig, TokenizerConfig
from model.config import AttentionConfig, ModelConfig, PositionConfig, check_fit
from settings import Wrong
from training.config import LoopConfig, OptimizerConfig, ScheduleConfig

STARTED = time.perf_counter()  # `wall` counts from here


@dataclass
class TrainConfig:
    """Every setting of a run, a room at a time."""

    model: ModelConfig
    position: PositionConfig
    attention: AttentionConfig
    data: DataConfig
    tokenizer: TokenizerConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    train: LoopConfig
    log: LogConfig
    run_dir: str | None = None
    resume: str | None = None
    init_from: str | None = None
    like: str | None = None

    def __post_init__(self) -> None:
        check_fit(self.model, self.position)


PROGRAM = command.Program(__file__, __doc__, TrainConfig, "train")


def configure(overrides: Sequence[str]) -> TrainConfig:
    """The settings of `python train.py <overrides>`. ValueError for what a user may not type."""
    return command.configure(PROGRAM, list(overrides))


@dataclass
class Result:
    """How a run ended: its folder, where it stands (training.stopping.State), why it stopped, what its
    heads do, in words, and what it wrote last."""

    folder: Path
    state: Any
    ended: str
    interrupted: bool
    heads: list[str]
    sample: str


class Failed(RuntimeError):
    """A run that cannot go on; what it had saved is sound."""


def set_up(config: TrainConfig, words: Sequence[str], say: Callable[[str], None]) -> tuple:
    """Everything the loop needs: the settings with every `auto` settled, (x, y) batches, the model, its
    optimizers, where the run stands, and its folder, the last thing that is made."""
    import torch

    from data.batches import Batches, check_length
    from data.store import prepare
    from model.gpt import GPT
    from model.noise import mix
    from model.weights import load
    from training import checkpoint, products, speed
    from training.folder import new_folder
    from training.optimizer import make_optimizers
    from training.stopping import State

    # What the machine is
    loop = speed.resolve(config.train)
    config = replace(config, train=loop)
    library = f", products by {products.choose()}" if loop.device == "cpu" else ""
    say(f"device   {loop.device}, {loop.dtype}{library}, threads: {torch.get_num_threads()}")

    # Text → ids → (x, y)
    resumed = Path(config.resume) if config.resume else None
    tokenizer = config.tokenizer
    if resumed:  # the words stay those it was trained on
        tokenizer = replace(tokenizer, path=str(resumed / "tokenizer.json"))
    text = prepare(config.data, tokenizer, say)
    for line in text.summary().splitlines():
        say(f"text     {line}")
    check_length(len(text.train), len(text.validation), config.model.context_length)
    batches = Batches(text.train, loop.batch_size, config.model.context_length, loop.seed)

    # ids → logits
    torch.manual_seed(mix(loop.seed))
    model = GPT(text.tokenizer.vocab_size, config.model, config.position, config.attention)
    if config.init_from:
        model.load_state_dict(load(checkpoint.find(Path(config.init_from), "best", say)).state_dict())
    model = model.to(loop.device)
    optimizers = make_optimizers(model, config.optimizer)
    say(f"model    {sum(p.numel() for p in model.parameters()):,} parameters: {summary(config)}")

    # Where the run stands
    if resumed:
        state = checkpoint.restore(checkpoint.find(resumed, "last", say), model, optimizers)
        if state.fingerprint != text.fingerprint:
            raise Wrong(f"resume={resumed}: its text has changed; init_from={resumed} starts a new run on it")
        return config, text, batches, model, optimizers, state, resumed
    state = State(fingerprint=text.fingerprint, start=first_token(text))
    return config, text, batches, model, optimizers, state, new_folder(config.run_dir, words)


def first_token(text) -> int:
    """What a text begins with when there is no prompt: the end of another, else a newline, else the most
    frequent token."""
    if text.tokenizer.end_of_text is not None:
        return text.tokenizer.end_of_text
    import numpy as np

    newline = text.tokenizer.encode("\n")
    return int(newline[0]) if len(newline) == 1 else int(np.bincount(text.train[:1_000_000]).argmax())


def summary(config: TrainConfig) -> str:
    """The model in a few words."""
    m = config.model
    shape = f"{m.n_layers} layers × {m.n_heads} heads × {m.d_model} wide, context {m.context_length}"
    return f"{shape}, position {config.position.name}, {config.attention.name} attention"


def train(config: TrainConfig, words: Sequence[str] = (), say: Callable[[str], None] = print) -> Result:
    """Train one run, from its first step or from where it stands.

    Wrong, before anything is created, for settings that cannot work; Failed when the run breaks off.
    """
    import torch

    from training import checkpoint
    from training.folder import take_lock
    from training.schedule import factor
    from training.step import NotFinite, train_step
    from training.stopping import Interrupted, ended, minutes_since
    from watch import Watch, announce, begin, heads_in_words

    try:
        config, text, batches, model, optimizers, state, folder = set_up(config, words, say)
        lock = take_lock(folder)
    except ValueError as error:
        raise Wrong(str(error)) from error
    loop, begun = config.train, state.step
    if config.resume and (why := ended(loop, state, 0.0)):
        more = f"train.max_steps={2 * state.step}" if state.step >= loop.max_steps else "another limit"
        say(f"nothing to do: {why}; {more} would go on")
        lock.close()
        return Result(folder, state, why, False, heads_in_words(state), "")
    with lock, Interrupted() as interrupted:
        guesses = torch.compile(model) if loop.compile == "true" else model
        try:
            if state.step == 0:
                checkpoint.save(folder, model, optimizers, state)
            begin(config, folder, text, words)
            announce(folder, say)
            with Watch(config, folder, text, model, state, STARTED) as watch:
                while True:
                    if state.step > begun or state.step == 0:
                        watch.look(model, optimizers, state)
                    why = "interrupted" if interrupted.asked else ended(loop, state, minutes_since(STARTED))
                    if why:
                        break
                    interrupted.patient = True
                    scale = factor(config.schedule, state.step, loop.max_steps)
                    started = time.perf_counter()
                    x, y = (ids.to(loop.device) for ids in batches.batch(state.step))
                    loss, norm = train_step(
                        guesses, optimizers, x, y, step=state.step, seed=loop.seed, factor=scale,
                        grad_accum=loop.grad_accum, grad_clip=loop.grad_clip, dtype=loop.dtype,
                    )
                    state.stepped(x.numel(), time.perf_counter() - started)
                    watch.stepped(state, loss, norm, optimizers[-1].param_groups[0]["lr"])
                watch.finish(model, optimizers, state, hurry=interrupted.asked)
        except (NotFinite, OSError) as error:
            raise Failed(f"{error}; {checkpoint.last_good(folder)}") from error
        except KeyboardInterrupt:
            if state.step == 0 and not config.resume:
                shutil.rmtree(folder)
                print("interrupted before the first step: nothing is kept", file=sys.stderr)
            raise
    return Result(folder, state, why, interrupted.asked, heads_in_words(state), watch.sample)


def report(result: Result) -> None:
    """What the terminal says at the end."""
    print(f"\n{result.ended}")
    if result.state.best_val_loss is not None:
        print(f"best     val loss {result.state.best_val_loss:.4f} at step {result.state.best_step}")
    for line in result.heads:
        print(f"heads    {line}")
    if result.sample:
        print("sample   " + result.sample.rstrip().replace("\n", "\n         "))
    print(f"saved    {result.folder}/checkpoints")
    if result.interrupted:
        print(f"go on    python train.py resume={result.folder}")
    print(f"next     python sample.py run={result.folder}")


def main(config: TrainConfig) -> int:
    try:
        result = train(config, sys.argv[1:])
    except (Failed, OSError) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 1
    report(result)
    return 130 if result.interrupted else 0


if __name__ == "__main__":
    command.run(PROGRAM, main)
