"""Write text with a trained model, by default the newest run in runs/

  python sample.py                                    the newest run, from nothing
  python sample.py prompt='Once upon a time'          in any language, without more quoting than the shell's
  python sample.py run=runs/my-run checkpoint=0       another run, before it had learned anything
  python sample.py temperature=0 max_new_tokens=50    always the likeliest token
  python sample.py num_samples=4 top_p=0.9 seed=7 out=four.txt
"""

import sys
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import command
from interchange.config import is_model_folder
from model.config import between, choose
from settings import Wrong, folder_given


@dataclass
class SampleConfig:
    """What to write, and how; null (or 0 for top_k) switches a filter off."""

    run: str | None = None  # a run's folder; latest (or nothing) is the newest
    checkpoint: str = "best"  # best, last or a step
    prompt: str | None = None
    prompt_file: str | None = None  # - = standard input
    max_new_tokens: int = 300
    temperature: float = 0.8  # 0 = always the likeliest token
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = 0.1
    repetition_penalty: float = 1.0
    stop: str | None = None  # one text, at which writing ends
    num_samples: int = 1
    seed: int = 1
    cache: bool = True
    compile: str = "auto"  # true and false; auto compiles where the text is long enough to repay it
    out: str | None = None  # a file
    attention: bool = False

    def __post_init__(self) -> None:
        if self.prompt is not None and self.prompt_file is not None:
            raise ValueError("prompt= and prompt_file= exclude each other")
        between("max_new_tokens", self.max_new_tokens, 1, 10_000_000)
        between("num_samples", self.num_samples, 1, 10_000)
        between("seed", self.seed, 0, 2**63 - 1)
        self.compile = self.compile.lower()
        choose("compile", self.compile, ("auto", "true", "false"))


PROGRAM = command.Program(__file__, __doc__, SampleConfig)


def say(line: str) -> None:
    """Everything that is not text goes to standard error."""
    print(line, file=sys.stderr, flush=True)


def open_run(config: SampleConfig) -> tuple[Path, Path]:
    """The run and its checkpoint; by default the newest that has a sound one. Wrong where there is none."""
    from training.checkpoint import find

    if config.run not in (None, "latest"):
        run = folder_given(f"run={config.run}", config.run)
        if is_model_folder(run):  # of transformers, which is run and checkpoint in one
            return run, run
        return run, find(run, config.checkpoint, say)
    begun = Path("runs").glob("*/checkpoints/last")
    for pointer in sorted(begun, key=lambda path: path.stat().st_mtime, reverse=True):
        run = pointer.parent.parent
        try:
            sound = find(run)
        except ValueError as error:
            say(f"skipped {run}: {error}")
            continue
        return run, sound if config.checkpoint == "last" else find(run, config.checkpoint, say)
    raise Wrong("there is no run with a checkpoint in runs/; run train.py first, or name one: run=...")


def read_prompt(config: SampleConfig) -> str:
    """The prompt, from wherever it comes; "" if there is none. Wrong where it cannot be read."""
    if config.prompt_file is None:
        return config.prompt or ""
    name = config.prompt_file
    if name == "-" and sys.stdin is None:
        raise Wrong("prompt_file=-: standard input is closed")
    try:
        text = (sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Wrong(f"prompt_file={name}: not UTF-8 text at byte {error.start}") from error
    except OSError as error:
        raise Wrong(f"prompt_file={name}: {error.strerror}") from error
    return text.removesuffix("\n").removesuffix("\r")


def open_model(config: SampleConfig, prompt: str, folder: Path) -> tuple[Any, Any, list[int], Any]:
    """The model, its tokenizer, the ids it begins with, and how it draws. ValueError where they do not fit
    each other, or the prompt has characters that the tokenizer does not know."""
    from data.tokenizer import Tokenizer
    from interchange.folder import read
    from model.generate import Sampling
    from model.weights import load
    from training.checkpoint import read_state

    filters = (config.top_k, config.top_p, config.min_p, config.repetition_penalty)
    sampling = Sampling(config.temperature, *filters)
    if is_model_folder(folder):
        tokenizer = Tokenizer.load(folder / "tokenizer.json")
        begun = tokenizer.encode(prompt).tolist() or [tokenizer.end_of_text or 0]
        cuts = {"context_length": len(begun) + config.max_new_tokens, "vocab_size": tokenizer.vocab_size}
        return read(folder, say, **cuts), tokenizer, begun, sampling
    tokenizer = Tokenizer.load(folder.parent.parent / "tokenizer.json")
    model = load(folder)
    if tokenizer.vocab_size != model.vocab_size:
        raise ValueError(f"tokenizer.json has {tokenizer.vocab_size} tokens, the model {model.vocab_size}")
    begun = tokenizer.encode(prompt).tolist() if prompt else [read_state(folder).start]
    return model, tokenizer, begun, sampling


def compiled_twin(config: SampleConfig, model, library: str) -> Any:
    """The model, compiled for one token at a time; None where that would not pay."""
    from training import compiled

    if not config.cache or config.compile == "false":
        return None
    texts, tokens = config.num_samples, config.max_new_tokens
    if config.compile == "auto" and not compiled.pays_for_text(model, texts, tokens):
        return None
    from data.store import cache_folder

    say("compiling, which takes about ten seconds")
    compiled.keep_in(cache_folder() / "compiled")
    return compiled.decoder(model, library, say)


def write(config: SampleConfig, prompt: str, opened: tuple, out: TextIO) -> list[int]:
    """Print the prompt and what the model makes of it, as it comes: whole characters, up to `stop`.

    Returns the ids of the first text, prompt included.
    """
    import torch

    from data.stream import TextStream
    from model.generate import generate
    from training import products

    model, tokenizer, begun, sampling = opened
    twin = compiled_twin(config, model, products.choose(model))
    ids, end = torch.tensor([begun] * config.num_samples), tokenizer.end_of_text
    drawn = generate(
        model, ids, config.max_new_tokens, sampling,
        seed=config.seed, cache=config.cache, end=end, decode=twin,
    )
    streams = [TextStream(tokenizer, config.stop) for _ in range(config.num_samples)]
    texts = [prompt] * config.num_samples
    out.write(prompt)
    first = list(begun)
    for ids in drawn:
        for number, id in enumerate(ids.tolist()):
            stream = streams[number]
            if stream.stopped or id == end:
                stream.stopped = True
                continue
            piece = stream.feed(id)
            texts[number] += piece
            if number == 0:
                first.append(id)
                out.write(piece)
                out.flush()
        if all(stream.stopped for stream in streams):
            break
    out.write(streams[0].flush() + "\n")
    for text, stream in zip(texts[1:], streams[1:], strict=True):
        out.write(f"---\n{text}{stream.flush()}\n")
    out.flush()
    return first


def keep_maps(run: Path, model, tokenizer, ids: list[int]) -> None:
    """What the model looked at while it wrote, for TensorBoard, in <run>/samples/<time>/."""
    import time

    import torch

    from dashboard import evidence, heads
    from dashboard.attention_tab.header import MOST
    from dashboard.logger import Logger

    ids = torch.tensor(ids[-min(model.config.context_length, MOST["length"]) :])
    maps, loss = evidence.look(model, ids)  # (L, H, T, T), (T - 1,)
    scores = heads.scores(maps, ids)
    logger = Logger(run / "samples" / time.strftime("%Y-%m-%d_%H-%M-%S"))
    logger.sample(0, "", tokenizer.decode(ids.tolist()))
    labels = [tokenizer.label(id) for id in ids.tolist()]
    about = "What the model wrote, after its prompt."
    logger.maps(0, "sample", maps, labels, scores=scores, loss=loss, about=about)
    logger.attention(0, "sample", maps, labels, scores)
    logger.close()
    say(f"maps     {run}/samples; tensorboard --logdir {run.resolve().parent}")


def main(config: SampleConfig) -> int:
    prompt = read_prompt(config)
    warnings.showwarning = lambda message, *rest: say(f"{message}")
    try:
        run, folder = open_run(config)
        try:
            opened = open_model(config, prompt, folder)
        except ValueError:
            if folder.exists():
                raise
            run, folder = open_run(config)  # the one before was pruned meanwhile, by the training
            opened = open_model(config, prompt, folder)
        say(f"{folder}")
        file = open(config.out, "w", encoding="utf-8", newline="") if config.out else None  # noqa: SIM115
    except ValueError as error:
        raise Wrong(str(error)) from error
    except OSError as error:
        raise Wrong(f"out={config.out}: {error.strerror}") from error
    try:
        with file or nullcontext(sys.stdout) as out:
            ids = write(config, prompt, opened, out)
    except BrokenPipeError:
        raise
    except OSError as error:
        say(f"sample.py: the text cannot be written: {error.strerror}")
        return 1
    if config.out:
        say(f"written to {config.out}")
    if config.attention:
        keep_maps(run, opened[0], opened[1], ids)
    return 0


if __name__ == "__main__":
    command.run(PROGRAM, main)
