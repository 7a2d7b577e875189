"""Products by oneDNN are products."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from training import products

LIBRARY = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch without oneDNN")


def close(found, a, b, bias=0.0):
    """To float32's rounding of a sum of K products."""
    expected = (a.double() @ b.double() + bias).float()
    torch.testing.assert_close(found, expected, atol=3e-6 * a.size(-1) ** 0.5, rtol=1e-5)


@LIBRARY
@pytest.mark.parametrize(
    ("M", "K", "N"), [(1, 512, 512), (5, 7, 3), (300, 128, 384), (384, 90, 128), (16, 1, 90_000)]
)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_every_shape_and_layout_in_either_library(M, K, N, turned, monkeypatch):
    torch.manual_seed(0)
    a = torch.randn(K, M).t() if turned[0] else torch.randn(M, K)
    b = torch.randn(N, K).t() if turned[1] else torch.randn(K, N)
    bias, three = torch.randn(N), torch.randn(3, 1, 1)
    for large in (1, 2**60):  # oneDNN always, and never
        monkeypatch.setattr(products, "LARGE", large)
        close(products.mm(a, b), a, b)
        close(products.addmm(bias, a, b), a, b, bias)
        close(products.addmm(bias, a, b, beta=0.5), a, b, 0.5 * bias)
        close(products.addmm(torch.randn(M, N), a, b, beta=0), a, b)
        close(products.bmm(three * a, three * b), three * a, three * b)


@LIBRARY
def test_what_onednn_cannot_have_goes_to_mkl(monkeypatch):
    monkeypatch.setattr(products, "LARGE", 1)
    a, b = torch.randn(4, 600, dtype=torch.float64), torch.randn(600, 600, dtype=torch.float64)
    torch.testing.assert_close(products.mm(a, b), torch.einsum("ij,jk->ik", a, b), atol=1e-12, rtol=0)
    assert products.mm(torch.randn(0, 600), torch.randn(600, 600)).shape == (0, 600)
    with pytest.raises(RuntimeError, match="2x3 and 4x5"):
        products.mm(torch.randn(2, 3), torch.randn(4, 5))
    a, b = torch.randn(4, 600), torch.randn(600, 600)
    with pytest.raises(RuntimeError):
        products.mm(a[0], b)
    with pytest.raises(RuntimeError, match="batch"):
        products.bmm(a.expand(2, 4, 600), b.expand(3, 600, 600))
    for bias in (torch.full((1,), 3.0).expand(600), torch.randn(1200)[::2], torch.randn(600, 3)[:, 1]):
        close(products.addmm(bias, a, b), a, b, bias)  # which oneDNN would read as if it were contiguous


def test_small_models_stay_with_mkl_when_sampling():
    assert products.choose(nn.Linear(128, 128)) == "MKL"


TRAINED = """
import torch
from torch import nn
from training import products
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256, bias=False))
x = torch.randn(64, 8, 256)
def gradients():
    net.zero_grad()
    net(x).square().mean().backward()
    return [weight.grad.clone() for weight in net.parameters()]
before = gradients()
products.suits = lambda: True
assert products.choose() == "oneDNN" == products.choose()
asked = []
products.onednn, kept = lambda *a: asked.append(1) or kept(*a), products.onednn
for old, new in zip(before, gradients(), strict=True):
    torch.testing.assert_close(new, old, atol=1e-8, rtol=1e-4)
print(len(asked))
"""


@LIBRARY
def test_a_process_that_chose_it_computes_the_same_gradients():
    done = subprocess.run([sys.executable, "-c", TRAINED], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 5  # two forward, two for the weights, one for the input of the second


COMPILED = """
import sys
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code
from training import compiled, products
products.LARGE, asked = 1, []
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48, bias=False))
x = torch.randn(5, 48)
def gradients(model):
    net.zero_grad()
    out = model(x)
    out.square().mean().backward()
    return [out.detach(), *(weight.grad.clone() for weight in net.parameters())]
before = gradients(net)
products.install()
products.onednn, kept = lambda *a: asked.append(1) or kept(*a), products.onednn
twin = compiled.Compiled(net, "oneDNN", sys.exit, dynamic=True)
found, (forward, backward) = run_and_get_code(lambda: gradients(twin))
for old, new in zip(before, found, strict=True):
    torch.testing.assert_close(new, old, atol=1e-7, rtol=1e-4)
calls = "torch.ops.mkldnn._linear_pointwise.default("
print(len(asked), forward.count(calls), backward.count(calls))
"""


@LIBRARY
@pytest.mark.slow
def test_a_compiled_graph_calls_it_without_python_in_between(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=300,
        env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "2", "3"]  # backward: both weights, and the input of the second
