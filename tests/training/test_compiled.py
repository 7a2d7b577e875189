"""The compiled twin, and when it is made."""

import os

import pytest
import torch

from training import compiled, products
from training.compiled import settle
from training.config import LoopConfig
from training.distributed import World

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # PyTorch's own, on import


class Slow:
    def __init__(self, seconds):
        self.seconds, self.embed = seconds, torch.nn.Embedding(1, 1)


def test_it_is_made_only_where_it_repays_itself(monkeypatch):
    clock = iter(range(10**6))
    monkeypatch.setattr(compiled, "generate", lambda model, prompt, tokens: iter(()))
    monkeypatch.setattr(compiled.time, "perf_counter", lambda: next(clock) * 0.016)  # 1 ms a token
    assert not compiled.pays_for_text(Slow(1), 1, 300)
    assert not compiled.pays_for_text(Slow(1), 1, 79_000)  # 79 s, of which a quarter would be saved
    assert compiled.pays_for_text(Slow(1), 1, 81_000)


def test_training_is_compiled_only_where_so_many_steps_repay_it(make_gpt):
    model, batch = make_gpt(), torch.randint(50, (2, 4, 8))
    for steps, expected in ((800, "false"), (10**9, "true")):
        settled = settle(LoopConfig(device="cpu", dtype="float32"), model, batch, steps, World())
        assert settled.compile == expected
    assert all(weight.grad is None for weight in model.parameters())
    asked = LoopConfig(compile="true", device="cpu")
    assert settle(asked, model, batch, 1, World()) is asked


def test_without_a_compiler_it_is_the_model_itself_and_says_so_once(make_gpt, tmp_path, monkeypatch):
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", (None, "/no/such/compiler"))
    monkeypatch.setattr(torch._inductor.config, "force_disable_caches", True)
    model, ids, said = make_gpt(), torch.randint(50, (2, 6)), []
    compiled.keep_in(tmp_path)
    twin = compiled.Compiled(model, "MKL", said.append)
    with torch.no_grad():
        assert torch.equal(twin(ids), model(ids)) and torch.equal(twin(ids), model(ids))
    assert len(said) == 1 and "compiler" in said[0]


def test_without_a_place_for_compilations_pytorchs_own_folder_does(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")  # so that what is set below goes with the test
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    (tmp_path / "file").touch()
    compiled.keep_in(tmp_path / "file" / "compiled")
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
    compiled.keep_in(tmp_path / "compiled")
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "compiled")


@pytest.mark.slow
@pytest.mark.parametrize("library", ["MKL", "oneDNN"])
def test_one_compilation_serves_every_length_of_the_text(library, make_gpt, tmp_path, monkeypatch):
    from torch._dynamo.utils import counters

    from model.generate import generate

    counters.clear()
    monkeypatch.setattr(products, "LARGE", 1)
    model, prompt = make_gpt(), torch.randint(50, (2, 3))
    compiled.keep_in(tmp_path)
    twin = compiled.decoder(model, library, pytest.fail)
    fast = torch.stack(list(generate(model, prompt, 40, decode=twin)))
    assert torch.equal(fast, torch.stack(list(generate(model, prompt, 40))))
    assert counters["stats"]["unique_graphs"] == 1
