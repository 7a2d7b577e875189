"""Which of PyTorch's two libraries multiplies float32 matrices on a CPU.

PyTorch asks MKL, which keeps to AVX2 on processors that are not Intel's. oneDNN, which is also inside
PyTorch, uses AVX-512 wherever there is one: twice the operations a second in a large product, and more
than twice the bytes a second where one row meets a large matrix, as in sampling.
"""

import functools
import platform
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

LARGE = 2**17  # numbers in a matrix, from which even a single row is multiplied faster by oneDNN
KERNELS = torch.library.Library("aten", "IMPL")  # lives as long as the process, and so do the kernels in it


def worth_it(a: Tensor, b: Tensor) -> bool:
    """Whether oneDNN, and the detour to it, takes less time than MKL for (M, K) (K, N); what it cannot have,
    or what is wrong, is left to PyTorch and its messages."""
    if not (a.dim() == b.dim() == 2 and a.dtype == b.dtype == torch.float32 and a.size(1) == b.size(0)):
        return False
    return a.size(0) > 0 and (b.numel() >= LARGE or a.size(0) * b.numel() >= 8 * LARGE)


def onednn(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a b + bias, (M, K) (K, N) → (M, N)."""
    # A weight's gradient, aᵀ before b: what stands first is copied, so let that be the smaller one.
    turn = bias is None and len(a) > b.size(1) and a.t().is_contiguous()
    if turn:
        a, b = b.t(), a.t()
    product = torch.ops.mkldnn._linear_pointwise(a, b.t(), bias, "none", [], "")
    return product.t() if turn else product


def mm(a: Tensor, b: Tensor) -> Tensor:
    if worth_it(a, b):
        return onednn(a, b)
    # As PyTorch computes it: addmm, whose kernel is still there, with beta = 0.
    return torch.ops.aten.addmm.out(a.new_zeros(()), a, b, beta=0, out=a.new_empty(0))


def addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    # oneDNN reads any bias as if it were contiguous.
    plain = beta == alpha == 1 and bias.shape == b.shape[1:] and bias.is_contiguous()
    if plain and bias.dtype == a.dtype and worth_it(a, b):
        return onednn(a, b, bias)
    return torch.ops.aten.addmm.out(bias, a, b, beta=beta, alpha=alpha, out=a.new_empty(0))


def bmm(a: Tensor, b: Tensor) -> Tensor:
    pairs = a.dim() == b.dim() == 3 and 0 < len(a) == len(b)
    if pairs and b[0].numel() >= LARGE / 8 and worth_it(a[0], b[0]):
        return torch.stack([onednn(left, right) for left, right in zip(a, b, strict=True)])
    return torch.ops.aten.bmm.out(a, b, out=a.new_empty(0))


def compiler_pass():
    """For torch.compile: what is worth it in a graph, by oneDNN without Python in between."""
    from torch._inductor import ir, mkldnn_ir
    from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
    from torch._inductor.lowering import register_lowering

    aten, linear = torch.ops.aten, torch.ops.mkldnn._linear_pointwise.default

    @register_lowering(linear)  # the compiler's own is for constant weights
    def lower(*arguments):
        return ir.TensorBox.create(mkldnn_ir.LinearUnary.create(*arguments))

    class ByOneDNN(CustomGraphPass):
        def __call__(self, graph: torch.fx.Graph) -> None:
            for node in graph.nodes:
                if node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:
                    continue
                *bias, a, b = node.args
                if worth_it(a.meta["val"], b.meta["val"]) and all(row.meta["val"].dim() == 1 for row in bias):
                    with graph.inserting_before(node):
                        turned = graph.call_function(aten.permute.default, (b, [1, 0]))
                    turned.meta["val"] = b.meta["val"].t()
                    node.target, node.args = linear, (a, turned, *(bias or [None]), "none", [], "")

        def uuid(self) -> bytes:
            return get_hash_for_files((__file__,))

    return ByOneDNN()


@functools.cache
def suits() -> bool:
    """Whether this machine's processor has AVX-512 and is not Intel's, and oneDNN is there and agrees."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not torch.backends.mkldnn.is_available():
        return False
    facts = Path("/proc/cpuinfo")
    if "Intel" in (facts.read_text(errors="replace") if facts.exists() else platform.processor()):
        return False
    a, b = torch.rand(3, 8), torch.rand(8, 5)
    try:
        return torch.allclose(onednn(a, b), a @ b)
    except (RuntimeError, AttributeError):  # this PyTorch calls it otherwise
        return False


@functools.cache
def install() -> None:
    """From here on this process multiplies with oneDNN what is worth it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, that a kernel is replaced
        for name, kernel in {"mm": mm, "addmm": addmm, "bmm": bmm}.items():
            KERNELS.impl(name, kernel, "CPU")


def choose(model: nn.Module | None = None) -> str:
    """Let oneDNN multiply in this process where that is faster: in training (no model), and in sampling
    from a model whose matrices are large. Returns the name of the library for large products."""
    pytorchs = "MKL" if torch.backends.mkl.is_available() else "PyTorch"
    sizes = sorted(weight.numel() for weight in model.parameters() if weight.dim() == 2) if model else [LARGE]
    if sizes[len(sizes) // 2] < LARGE or not suits():
        return pytorchs
    install()
    return "oneDNN"
