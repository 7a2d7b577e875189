"""Train a small GPT on text, and watch it in TensorBoard: tensorboard --logdir runs

  python train.py                                     on the documentation that Python ships, a few minutes
  python train.py data=file data.path=my.txt          on your own text: a file, a folder or a glob
  python train.py model=tiny position=alibi train.max_steps=2000
  python train.py -m position=rope,learned,none       a sweep: a run for each
  python train.py resume=latest                       go on after Ctrl-C
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import command
from dashboard.config import LogConfig
from data.config import DataConfig, TokenizerConfig
from interchange.config import is_model_folder
from model.config import AttentionConfig, ModelConfig, PositionConfig, check_fit
from settings import Wrong
from training.config import LoopConfig, OptimizerConfig, ScheduleConfig

STARTED = time.perf_counter()  # `wall` counts from here
INTERRUPTED = "interrupted"


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


@dataclass
class Parts:
    """What the loop works with: the settings with every `auto` settled, (x, y) batches, the model, the same
    as it is trained (compiled, shared out), its optimizers, where the run stands, and its folder."""

    config: TrainConfig
    text: Any
    batches: Any
    model: Any
    guesses: Any
    optimizers: list
    state: Any
    folder: Path
    world: Any


def set_up(config: TrainConfig, words: Sequence[str], world, say: Callable[[str], None]) -> Parts:
    """Everything that is checked before the run's folder is made, the last of all."""
    import torch

    from data.batches import Batches, check_length
    from data.store import cache_folder, prepare
    from interchange.folder import read
    from model.gpt import GPT
    from model.noise import mix
    from model.weights import load
    from training import checkpoint, products
    from training.compiled import Compiled, keep_in, settle
    from training.folder import new_folder
    from training.optimizer import make_optimizers
    from training.speed import has_bfloat16, keep_pages, precision
    from training.stopping import State

    # What the machine is
    loop = config.train
    keep_pages()
    keep_in(cache_folder() / "compiled")
    library = products.choose() if loop.device == "cpu" else loop.device.upper()
    many = f", {world.size} processes" if world.size > 1 else ""
    threads = torch.get_num_threads()
    say(f"device   {loop.device}, products by {library}, threads: {threads}{many}")

    # Text → ids → (x, y)
    resumed = Path(config.resume) if config.resume else None
    kept = {"path": str(resumed / "tokenizer.json")} if resumed else {}  # the words it was trained on
    with world.one_a_machine_first():
        text = prepare(config.data, replace(config.tokenizer, **kept), say)
    for line in text.summary().splitlines():
        say(f"text     {line}")
    check_length(len(text.train), len(text.validation), config.model.context_length)
    batches = Batches(text.train, loop.batch_size, config.model.context_length, loop.seed)

    # ids → logits
    torch.manual_seed(mix(loop.seed))
    model = GPT(text.tokenizer.vocab_size, config.model, config.position, config.attention)
    if config.init_from and is_model_folder(Path(config.init_from)):
        cuts = {"context_length": config.model.context_length, "vocab_size": model.vocab_size}
        model.load_state_dict(read(Path(config.init_from), say, **cuts).state_dict())
    elif config.init_from:
        weights = load(checkpoint.find(Path(config.init_from), "best", say)).state_dict()
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise Wrong(f"init_from={config.init_from}: its weights do not fit its settings") from error
    model = model.to(loop.device)
    optimizers = make_optimizers(model, config.optimizer)
    loop = replace(loop, dtype=world.told(precision(loop, model)))
    weights = sum(weight.numel() for weight in model.parameters())
    say(f"model    {weights:,} parameters, {loop.dtype}: {summary(config)}")
    if config.model.attention_dropout and loop.device == "cpu":
        say("model    attention_dropout: the fused kernel cannot drop weights on a CPU; all are kept instead")
    if loop.dtype == "bfloat16" and not has_bfloat16(loop.device):
        say("model    this processor is not made for bfloat16: train.dtype=float32 is many times faster here")

    # Where the run stands
    state = State(text.fingerprint, text.first_token, untrained=not config.init_from)
    if resumed:
        state = checkpoint.restore(checkpoint.find(resumed, "last", say), model, optimizers)
        if state.fingerprint != text.fingerprint:
            raise Wrong(f"resume={resumed}: its text has changed; init_from={resumed} starts a new run on it")
    loop = settle(loop, model, batches.batch(state.step), loop.max_steps - state.step, world)
    config, guesses = replace(config, train=loop), model
    if loop.compile == "true":
        say("compiling, which takes up to a minute when nothing is cached")
        guesses = Compiled(model, library, say)
    guesses = world.wrap(guesses)
    now = {"torch": torch.__version__, "device": loop.device, "products": library, "threads": threads}
    now |= {"processes": world.size, "train.compile": loop.compile, "train.max_steps": loop.max_steps}
    now |= {"bfloat16 units": has_bfloat16(loop.device)}
    for line in ([f"goes on after step {state.step}"] if resumed else []) + state.changed(now):
        say(f"resume   {line}")
    folder = resumed or (new_folder(config.run_dir, words) if world.first else None)
    return Parts(config, text, batches, model, guesses, optimizers, state, world.told(folder), world)


def summary(config: TrainConfig) -> str:
    """The model in a few words."""
    m = config.model
    shape = f"layers × heads × width {m.n_layers} × {m.n_heads} × {m.d_model}, context {m.context_length}"
    return f"{shape}, position {config.position.name}, {config.attention.name} attention"


def train(config: TrainConfig, words: Sequence[str] = (), say: Callable[[str], None] = print) -> Result:
    """Train one run, from its first step or from where it stands.

    Wrong, before anything is created, for settings that cannot work; Failed when the run breaks off.
    """
    from training.distributed import another_died, join
    from training.folder import take_lock
    from training.speed import resolve
    from training.stopping import Interrupted, ended
    from watch import heads_in_words

    with ExitStack() as stack:
        interrupted = stack.enter_context(Interrupted())
        try:
            config = replace(config, train=resolve(config.train))
            world = join(config.train)
            say = say if world.first else lambda line: None
            parts = set_up(config, words, world, say)
            if world.first:
                stack.enter_context(take_lock(parts.folder))
        except ValueError as error:
            raise Wrong(str(error)) from error
        except RuntimeError as error:
            if not another_died(error):
                raise
            raise Failed("another process of this run has ended") from error
        state, loop = parts.state, parts.config.train
        if not (config.resume and (why := ended(loop, state, 0.0))):
            return run(parts, words, interrupted, say)
        more = f"train.max_steps={2 * state.step}" if state.step >= loop.max_steps else "another limit"
        say(f"nothing to do: {why}; {more} would go on")
        return Result(parts.folder, state, why, False, heads_in_words(state), "")


def run(parts: Parts, words: Sequence[str], interrupted, say: Callable[[str], None]) -> Result:
    """The run itself, and what becomes of it when it breaks off."""
    from training import checkpoint
    from training.distributed import another_died
    from training.step import NotFinite
    from watch import heads_in_words

    try:
        why, sample = steps(parts, words, interrupted, say)
    except (NotFinite, OSError) as error:
        last = checkpoint.last_good(parts.folder)
        if not checkpoint.steps(parts.folder) and parts.world.first:
            shutil.rmtree(parts.folder)  # nothing to go on from
        raise Failed(f"{error}; {last}") from error
    except RuntimeError as error:
        if not another_died(error):
            raise
        last = checkpoint.last_good(parts.folder)
        raise Failed(f"another process of this run has ended; {last}") from error
    except KeyboardInterrupt:
        if parts.state.step == 0 and not parts.config.resume and parts.world.first:
            shutil.rmtree(parts.folder)
            print("interrupted before the first step: nothing is kept", file=sys.stderr)
        raise
    state = parts.state
    return Result(parts.folder, state, why, why == INTERRUPTED, heads_in_words(state), sample)


def steps(parts: Parts, words: Sequence[str], interrupted, say: Callable[[str], None]) -> tuple[str, str]:
    """Step after step, till one of the limits; why it ended, and the last sample."""
    from training import checkpoint
    from training.schedule import factor
    from training.step import train_step
    from training.stopping import ended, minutes_since
    from watch import Companion, Watch, announce, begin

    config, model, optimizers = parts.config, parts.model, parts.optimizers
    state, world, loop, begun = parts.state, parts.world, parts.config.train, parts.state.step
    if world.first:
        if state.step == 0:
            checkpoint.save(parts.folder, model, optimizers, state)
        begin(config, parts.folder, parts.text, words)
        announce(parts.folder, say)
    here = config, parts.folder, parts.text, world
    with Watch(*here, model, state, STARTED) if world.first else Companion(*here) as watch:
        while True:
            if state.step > begun or state.step == 0:
                watch.look(model, optimizers, state)
            asked, minutes = world.most(len(interrupted.asked), minutes_since(STARTED))
            if why := INTERRUPTED if asked else ended(loop, state, minutes):
                break
            interrupted.patient = True
            scale = factor(config.schedule, state.step, loop.max_steps)
            started = time.perf_counter()
            x, y = (ids.to(loop.device) for ids in parts.batches.batch(state.step))
            loss, norm = train_step(
                parts.guesses, optimizers, x, y, step=state.step, seed=loop.seed, factor=scale,
                grad_accum=loop.grad_accum, grad_clip=loop.grad_clip, dtype=loop.dtype, world=world,
            )
            state.stepped(x.numel(), time.perf_counter() - started)
            watch.stepped(state, loss, norm, optimizers[-1].param_groups[0]["lr"])
        watch.finish(model, optimizers, state, hurry=why == INTERRUPTED)
    return why, watch.sample


def report(result: Result) -> None:
    """What the terminal says at the end."""
    print(f"\n{result.ended}")
    state = result.state
    if state.best_val_loss is not None:
        since = "" if state.best_step or state.val_step else ", before any training, and not measured since"
        if state.val_loss > state.best_val_loss + 0.1:
            since = f"; {state.val_loss:.4f} at step {state.val_step}: fewer steps, or model.token_dropout?"
        print(f"best     val loss {state.best_val_loss:.4f} at step {state.best_step}{since}")
    for line in result.heads:
        print(f"heads    {line}")
    if result.sample:
        print("sample   " + result.sample.rstrip().replace("\n", "\n         "))
    print(f"saved    {result.folder}/checkpoints")
    if result.interrupted:
        print(f"go on    python train.py resume={result.folder}")
    print(f"next     python sample.py run={result.folder}")


def main(config: TrainConfig) -> int:
    from training.distributed import leave

    try:
        result = train(config, sys.argv[1:])
    except (Failed, OSError) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return leave(1)
    if os.environ.get("RANK", "0") == "0":
        report(result)
    return leave(130 if result.interrupted else 0)


if __name__ == "__main__":
    command.run(PROGRAM, main)
