"""The same weights in transformers: python -m benchmarks.peers [rounds]   (needs transformers)

The model of conf/model/small.yaml, weights redrawn, written by `interchange` and opened by transformers. In
turn, round after round, in one process, medians: text from the same prompt, by the cache of each, greedily,
ours also compiled, as sample.py does where the text is long; and a training step (forward and backward) of
the same batch, in float32 and as `train.dtype=auto` takes it. transformers computes with the library that
PyTorch takes by itself, ours as `sample.py` and `train.py` do.
"""

import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks.sampling import build, pytorchs_choice
from data.store import cache_folder
from interchange.folder import write
from model.generate import Sampling, generate
from training import compiled, products
from training.config import LoopConfig
from training.evaluate import loss_of
from training.speed import keep_pages, precision

NEW, BATCH = 200, 8


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main(rounds: int = 5) -> None:
    from transformers import AutoModelForCausalLM

    keep_pages()
    ours = build("small")
    library = products.choose(ours)
    with tempfile.TemporaryDirectory() as folder:
        write(ours, Path(folder) / "model", None)
        theirs = AutoModelForCausalLM.from_pretrained(Path(folder) / "model").eval()
    context = ours.config.context_length
    prompt, ids = torch.zeros(1, 8, dtype=torch.long), torch.randint(65, (BATCH, context + 1))
    x, y = ids[:, :-1], ids[:, 1:]
    with torch.inference_mode():
        apart = (ours(x) - theirs(x).logits).abs().max().item()
    options = {"max_new_tokens": NEW, "do_sample": False, "attention_mask": torch.ones_like(prompt)}
    text = [list(prompt[0]), None]

    def write_ours(twin: Callable | None = None) -> None:
        drawn = generate(ours, prompt, NEW, Sampling(temperature=0), decode=twin)
        text[0] = [int(id) for id in drawn]

    def write_theirs() -> None:
        text[1] = theirs.generate(prompt, **options)[0, prompt.size(1) :].tolist()

    def step(dtype: str = "float32") -> None:
        loss_of(ours, x, y, dtype).backward()
        ours.zero_grad()

    def their_step() -> None:
        F.cross_entropy(theirs(x).logits.flatten(0, 1), y.flatten()).backward()
        theirs.zero_grad()

    compiled.keep_in(cache_folder() / "compiled")
    twin = compiled.decoder(ours, library, print)
    write_ours(twin)  # compiles
    auto = precision(LoopConfig(device="cpu"), ours)
    taken: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        taken["ours"].append(seconds(write_ours))
        taken["compiled"].append(seconds(lambda: write_ours(twin)))
        taken["our step"].append(seconds(step))
        taken["as train.py"].append(seconds(lambda: step(auto)))
        with pytorchs_choice():
            taken["theirs"].append(seconds(write_theirs))
            taken["their step"].append(seconds(their_step))
    m = {name: statistics.median(values) for name, values in taken.items()}
    print(f"{torch.get_num_threads()} threads, medians of {rounds}; the same text: {text[0] == text[1]};")
    print(f"logits differ by {apart:.0e} at most")
    for what, tokens, one, other in (
        ("writing", NEW, "ours", "theirs"),
        ("compiled", NEW, "compiled", "theirs"),
        ("training", BATCH * context, "our step", "their step"),
        (f"in {auto}", BATCH * context, "as train.py", "their step"),
    ):
        rates = f"{tokens / m[one]:6.0f} tokens/s, transformers {tokens / m[other]:6.0f}"
        print(f"{what:<12} {rates}, × {m[other] / m[one]:.1f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
