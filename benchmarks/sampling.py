"""How fast text is written: python -m benchmarks.sampling [rounds]

Everything is measured in turn, round after round, in one process; medians are shown. Weights are random.

    re-reading   what nanoGPT does: the last context_length tokens are read again for each new one
    limit        a timed sweep of exactly the model's matrices, in their order, at this batch: nothing that
                 reads every weight for every token can be faster; by PyTorch's own choice of library, and
                 by the library that sampling chooses (training/products.py)
    share        of the first limit, and of the second
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import train
from model.generate import Sampling, generate
from model.gpt import GPT
from training import products
from training.compiled import decoder, keep_in

VOCABULARY = {"small": 65, "nano": 2048}
LONG = 1000
SAMPLING = Sampling(temperature=0.8, min_p=0.1)


def build(name: str) -> GPT:
    """A model of conf/model/<name>.yaml with every weight redrawn."""
    config = train.configure([f"model={name}"])
    torch.manual_seed(0)
    model = GPT(VOCABULARY[name], config.model, config.position).eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.05)
    return model


def rate(tokens: int, work: Callable[[], object]) -> float:
    """Tokens a second and text."""
    started = time.perf_counter()
    work()
    return tokens / (time.perf_counter() - started)


def write(model: GPT, prompt: Tensor, tokens: int, **options) -> None:
    for _ in generate(model, prompt, tokens, SAMPLING, **options):
        pass


@torch.inference_mode()
def reread(model: GPT, prompt: Tensor, tokens: int) -> None:
    """nanoGPT's loop."""
    ids = prompt
    for _ in range(tokens):
        logits = model(ids[:, -model.config.context_length :])[:, -1] / SAMPLING.temperature
        ids = torch.cat((ids, torch.multinomial(logits.softmax(-1), 1)), 1)


@torch.inference_mode()
def sweep(model: GPT, texts: int, times: int = 50) -> float:
    """The matrices alone, in tokens a second and text: the median of `times` sweeps."""
    matrices = [part.weight for part in model.modules() if isinstance(part, nn.Linear)]
    rows = {matrix.size(1): torch.randn(texts, 1, matrix.size(1)) for matrix in matrices}
    return statistics.median(
        rate(1, lambda: [F.linear(rows[matrix.size(1)], matrix) for matrix in matrices]) for _ in range(times)
    )


@contextmanager
def pytorchs_choice() -> Iterator[None]:
    """Products by the library that PyTorch takes by itself."""
    large, products.LARGE = products.LARGE, 2**60
    yield
    products.LARGE = large


def measure(name: str, texts: int, rounds: int, folder: Path) -> dict[str, float]:
    """Medians over the rounds, in tokens a second and text."""
    model = build(name)
    library, context = products.choose(model), model.config.context_length
    window, start = torch.randint(model.vocab_size, (texts, context)), torch.zeros(texts, 1, dtype=torch.long)
    keep_in(folder)
    twin = decoder(model, library, print)
    cold = time.perf_counter()
    write(model, start, 2, decode=twin)
    found = {"compile": [time.perf_counter() - cold]}
    long, again, inside = texts == 1 and context == 256, max(2, 16 // texts), context - 1
    for _ in range(rounds):
        with pytorchs_choice():
            results = {"re-reading": rate(again, lambda: reread(model, window, again))}
            results["limit"] = sweep(model, texts)
            if long:
                results["re-reading, long"] = rate(LONG, lambda: reread(model, start, LONG))
        results["own limit"] = sweep(model, texts)
        results["cached"] = rate(inside, lambda: write(model, start, inside))
        results["compiled"] = rate(inside, lambda: write(model, start, inside, decode=twin))
        if long:
            results["long"] = rate(LONG, lambda: write(model, start, LONG))
        for key, value in results.items():
            found.setdefault(key, []).append(value)
    return {"library": library} | {key: statistics.median(values) for key, values in found.items()}


def main(rounds: int = 5) -> None:
    print(f"{torch.get_num_threads()} threads, medians of {rounds}; tokens a second and text")
    heads = "model texts re-reading cached × compiled × limit own share own library compile".split()  # noqa: SIM905
    print("".join(f"{head:>11}" for head in heads))
    long = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("small", "nano"):
            for texts in (1, 16):
                m = measure(name, texts, rounds, Path(folder))
                again, cached = m["re-reading"], m["cached"]
                cells = [name, texts, f"{again:.1f}", f"{cached:.0f}", f"{cached / again:.1f}"]
                cells += [f"{m['compiled']:.0f}", f"{m['compiled'] / again:.1f}"]
                cells += [f"{m['limit']:.0f}", f"{m['own limit']:.0f}"]
                cells += [f"{cached / m['limit']:.2f}", f"{cached / m['own limit']:.2f}"]
                cells += [m["library"], f"{m['compile']:.0f} s"]
                print("".join(f"{cell:>11}" for cell in cells), flush=True)
                if "long" in m:
                    long[name] = m
    for name, m in long.items():
        fast, slow = m["long"], m["re-reading, long"]
        ratio = f"{fast:.0f} against {slow:.1f} re-reading, × {fast / slow:.1f}"
        print(f"{LONG} tokens, {name}, context 256: {ratio}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
