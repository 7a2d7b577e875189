"""Attention maps on their way into TensorBoard's Attention tab: what any training loop may call.

Shapes: L layers, H heads, T tokens. The form of what is written stands in `dashboard.attention_tab.header`.
"""

import json
import zlib
from collections.abc import Sequence

import numpy as np
import torch
from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_BLOB_SEQUENCE, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from dashboard import heads
from dashboard.attention_tab.header import VERSION, read_header
from dashboard.labels import token_label

PLUGIN = "attention"
GZIP = 16 + zlib.MAX_WBITS  # the window's size, and by how much zlib is told to write gzip's frame
COLUMNS = 40  # of a token's text; it may be anything
AVERAGED = "nn.MultiheadAttention averages its heads unless average_attn_weights=False"


def log_attention(
    writer: SummaryWriter, tag: str, weights: Tensor | np.ndarray | Sequence, tokens: Sequence[str],
    step: int, *, causal: bool | None = None, scores: dict | None = None, loss: Sequence[float] | None = None,
    ablation: Sequence | None = None, gain: float | None = None, about: str = "",
) -> None:
    """Record what every head looked at, for TensorBoard's Attention tab.

    weights: (L, H, T, T), or a list of (H, T, T), one a layer: row t is what token t attends to, in [0, 1],
    without dropout. tokens: T texts. causal: whether nothing looks ahead; found out if not said. scores:
    {name: (L, H)}; if not said, those of `dashboard.heads`, where tokens of the same text count as the same.
    A score that is not finite is left out, such as induction where no token comes twice. loss: T - 1 numbers,
    of predicting token i + 1 from position i. ablation: (L, H), the rise of the loss without a head. gain:
    how much lower the loss is on the second copy of what is repeated. about: a sentence on the tokens.

    Tensors or arrays of any type. ValueError for anything else, naming the numbers. At most 256 layers of 256
    heads, 1,024 tokens, and a megabyte of tokens and scores, enough for 20,000 heads. Weights are kept as
    round(255 √w), so within 0.004.
    """
    if len(shape := tuple(getattr(weights, "shape", ()))) in (2, 3):
        hint = f"one layer: weights[None]; {AVERAGED}" if len(shape) == 3 else AVERAGED
        raise ValueError(f"weights are {shape}, not (layers, heads, length, length); {hint}")
    layers = [_layer(number, layer) for number, layer in enumerate(weights)]
    tokens = [str(token) for token in tokens]
    ahead = max((layer.triu(1).max().item() for layer in layers), default=0.0)
    if causal and ahead:
        raise ValueError(f"causal=True, but there are weights of up to {ahead:.3g} on later tokens")
    n_heads, length = layers[0].shape[:2] if layers else (0, 0)
    if odd := [(n, layer.shape) for n, layer in enumerate(layers) if layer.shape[:2] != (n_heads, length)]:
        raise ValueError(f"layer {odd[0][0]} is {tuple(odd[0][1])}, layer 0 {tuple(layers[0].shape)}")
    header = {
        "version": VERSION,
        "layers": len(layers),
        "heads": n_heads,
        "length": length,
        "causal": not ahead if causal is None else bool(causal),
        "tokens": [token_label(token[: 2 * COLUMNS], COLUMNS) for token in tokens],
        "scores": {},
        "loss": plain(loss),
        "ablation": plain(ablation),
        "gain": plain(gain),
        "about": about,
    }
    read_header(_json(header), len(layers) + 1)  # refuses a shape before anything is computed for it
    found = _scores(layers, tokens) if scores is None else scores
    numbers = {name: plain(values) for name, values in found.items()}
    header["scores"] = {name: values for name, values in numbers.items() if np.isfinite(values).all()}
    first = _json(header)
    read_header(first, len(layers) + 1)
    _write(writer, tag, [first, *(_map(layer, header["causal"]) for layer in layers)], int(step))


def _layer(number: int, weights) -> Tensor:
    """A layer's weights as a tensor (H, T, T). ValueError for what is none."""
    if weights is None:
        raise ValueError(f"layer {number} is None: fused kernels keep no weights (eager ones do)")
    layer = _tensor(weights).float()
    if layer.dim() != 3 or layer.shape[1] != layer.shape[2] or not layer.numel():
        hints = {2: f"; {AVERAGED}", 4: f"; of a batch, take one: w[0] is {tuple(layer.shape[1:])}"}
        hint = hints.get(layer.dim(), "")
        raise ValueError(f"layer {number} is {tuple(layer.shape)}, not (heads, length, length){hint}")
    low, high = (end.item() for end in layer.aminmax())
    if not (low >= 0 and high <= 1.001):
        hint = "scores before the softmax, or weights after dropout?"
        raise ValueError(f"layer {number} has weights from {low:.3g} to {high:.3g}, not 0 to 1; {hint}")
    return layer


def _tensor(values) -> Tensor:
    return values.detach() if isinstance(values, Tensor) else torch.tensor(np.asarray(values, np.float32))


def plain(values) -> float | list | None:
    """Numbers as JSON has them, to four places."""
    return None if values is None else (_tensor(values).cpu().double() * 1e4).round().div(1e4).tolist()


def _scores(layers: list[Tensor], tokens: Sequence[str]) -> dict[str, Tensor]:
    """Every head score (L, H), read from these tokens."""
    ids = {token: id for id, token in enumerate(dict.fromkeys(tokens))}
    ids = torch.tensor([ids[token] for token in tokens])
    each = [heads.scores(layer[None], ids) for layer in layers]
    return {name: torch.cat([scores[name] for scores in each]) for name in heads.SCORES}


def _map(layer: Tensor, causal: bool) -> bytes:
    """A layer's weights (H, T, T) as bytes: a square root spares the small ones, of which there are many."""
    levels = layer.clamp(0, 1).sqrt().mul(255).round().to(torch.uint8).cpu()
    if causal:
        levels = levels[:, torch.ones(levels.shape[1:], dtype=torch.bool).tril()]  # (H, T (T + 1) / 2)
    # Values hardly ever repeat but in runs: looking for more would take twice the time and find nothing.
    packed = zlib.compressobj(1, zlib.DEFLATED, GZIP, zlib.DEF_MEM_LEVEL, zlib.Z_RLE)
    return packed.compress(levels.numpy().tobytes()) + packed.flush()


def _json(header: dict) -> bytes:
    return json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()


def _write(writer: SummaryWriter, tag: str, blobs: list[bytes], step: int) -> None:
    """A blob sequence, by hand: SummaryWriter has no method for one."""
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=len(blobs))])
    metadata = SummaryMetadata(
        plugin_data=SummaryMetadata.PluginData(plugin_name=PLUGIN),
        data_class=DATA_CLASS_BLOB_SEQUENCE,  # without it TensorBoard would show nothing
    )
    tensor = TensorProto(dtype=DT_STRING, string_val=blobs, tensor_shape=shape)
    summary = Summary(value=[Summary.Value(tag=tag, tensor=tensor, metadata=metadata)])
    writer._get_file_writer().add_summary(summary, step)
