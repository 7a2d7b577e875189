"""What log_attention writes, read back with TensorBoard's own reader, and what it refuses."""

import gzip
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from dashboard import heads, log_attention
from dashboard.attention_tab.header import MOST_BYTES, read_header
from tests.dashboard.test_heads import random_weights

WORDS = ["the", " cat", "\n", "从前", "the", "", "<img src=x onerror=alert(1)>", "\udc80", " cat"]
T = len(WORDS)


def recorded(folder, tag="attention/mine") -> list[tuple[int, dict, list[bytes]]]:
    """Each step of a tag, its header and its maps, inflated."""
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0}).Reload()
    steps = [(event.step, list(event.tensor_proto.string_val)) for event in events.Tensors(tag)]
    return [(step, read_header(b[0], len(b)), [gzip.decompress(m) for m in b[1:]]) for step, b in steps]


def log(folder, weights, tokens=WORDS, step=3, **more) -> tuple[dict, list[bytes]]:
    with SummaryWriter(folder) as writer:
        log_attention(writer, "attention/mine", weights, tokens, step, **more)
    ((found, header, maps),) = recorded(folder)
    assert found == step
    return header, maps


def decoded(header: dict, maps: list[bytes]) -> torch.Tensor:
    """(L, H, T, T), as a page decodes it."""
    length, heads_of = header["length"], header["heads"]
    levels = torch.zeros(header["layers"], heads_of, length, length)
    seen = torch.ones(length, length).bool()
    for layer, data in enumerate(maps):
        values = torch.tensor(list(data), dtype=torch.float32).view(heads_of, -1)
        levels[layer][:, seen.tril() if header["causal"] else seen] = values
    return (levels / 255) ** 2


@pytest.mark.parametrize(
    "kind", ["tensor", "array", "list of tensors", "tuple of half precision", "nested lists"]
)
def test_weights_of_any_kind_come_back_within_what_a_byte_can_tell(tmp_path, kind):
    weights = random_weights(0, 3, 2, T, T)
    given = {
        "tensor": weights.requires_grad_(),
        "array": weights.detach().numpy(),
        "list of tensors": list(weights),
        "tuple of half precision": tuple(weights.bfloat16()),
        "nested lists": weights.tolist(),
    }[kind]
    header, maps = log(tmp_path, given)
    assert (header["layers"], header["heads"], header["length"], header["causal"]) == (3, 2, T, True)
    assert [len(data) for data in maps] == [2 * T * (T + 1) // 2] * 3
    slack = 0.004 if kind == "tuple of half precision" else 0
    assert (decoded(header, maps) - weights).abs().max() <= 1 / 255 + slack


def test_attention_that_looks_both_ways_is_kept_whole(tmp_path):
    weights = torch.randn(2, 4, T, T, generator=torch.Generator().manual_seed(1)).softmax(-1)
    header, maps = log(tmp_path, weights)
    assert not header["causal"] and [len(data) for data in maps] == [4 * T * T] * 2
    assert (decoded(header, maps) - weights).abs().max() <= 1 / 255


def test_small_weights_are_not_lost():
    """Linear bytes would send everything below 1/510 to zero."""
    weights = torch.tensor([[[0.9998, 0.0002], [0.0002, 0.9998]]])
    from dashboard.recording import _map

    levels = np.frombuffer(gzip.decompress(_map(weights, False)), np.uint8)
    assert levels[1] == 4 and (levels[1] / 255) ** 2 == pytest.approx(0.0002, abs=1e-4)


def test_tokens_are_text_and_can_be_seen(tmp_path):
    header, _ = log(tmp_path, random_weights(0, 1, 1, T, T), [*WORDS[:-1], "x" * 100_000])
    shown = ["the", "·cat", "↵", "从前", "the", "∅", "<img·src=x·onerror=alert(1)>", "\\udc80"]
    assert header["tokens"] == [*shown, "x" * 39 + "…"]


def test_scores_are_those_of_the_room_and_tokens_of_one_text_are_the_same(tmp_path):
    weights = random_weights(2, 2, 2, T, T)
    header, _ = log(tmp_path, weights)
    ids = torch.tensor([0, 1, 2, 3, 0, 4, 5, 6, 1])
    expected = heads.scores(weights, ids)
    assert set(header["scores"]) == set(heads.SCORES)
    for name, values in expected.items():
        assert torch.tensor(header["scores"][name]) == pytest.approx(values, abs=6e-5)


def test_a_score_without_an_occasion_is_left_out(tmp_path):
    header, _ = log(tmp_path, random_weights(0, 1, 1, 3, 3), ["a", "b", "c"])
    assert set(header["scores"]) == set(heads.SCORES) - {"induction", "duplicate_token"}


def test_what_else_is_known_stands_in_the_header(tmp_path):
    header, _ = log(
        tmp_path,
        random_weights(0, 2, 1, 3, 3),
        ["a", "b", "c"],
        scores={"mine": torch.tensor([[0.25], [1.0]]), "none": [[math.nan], [0.0]]},
        loss=torch.tensor([3.14159, 2.0]),
        ablation=np.array([[0.1], [-0.00001]]),
        gain=0.5,
        about="three letters",
    )
    assert header == {
        "version": 1, "layers": 2, "heads": 1, "length": 3, "causal": True, "tokens": ["a", "b", "c"],
        "scores": {"mine": [[0.25], [1.0]]}, "loss": [3.1416, 2.0], "ablation": [[0.1], [0.0]], "gain": 0.5,
        "about": "three letters",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("weights", "more", "says"),
    [
        ([], {}, "layers is 0, not a whole number from 1 to 256"),
        (torch.ones(3), {}, r"layer 0 is \(\), not \(heads, length, length\)"),
        (torch.ones(3, 3), {}, r"weights are \(3, 3\), .*averages its heads unless average_attn_w"),
        (torch.ones(4, 3, 3), {}, r"weights are \(4, 3, 3\), .*one layer: weights\[None\]; .*average_attn_w"),
        ([torch.ones(3, 3)], {}, r"layer 0 is \(3, 3\), .* unless average_attn_weights=False"),
        (torch.ones(1, 2, 3, 4), {}, r"layer 0 is \(2, 3, 4\)"),
        (torch.ones(1, 5, 2, 3, 3), {}, r"of a batch, take one: w\[0\] is \(2, 3, 3\)"),
        ([torch.eye(3)[None], torch.eye(4)[None]], {}, r"layer 1 is \(1, 4, 4\), layer 0 \(1, 3, 3\)"),
        ([torch.eye(3)[None], torch.eye(3).expand(2, 3, 3)], {}, r"layer 1 is \(2, 3, 3\)"),
        ([None], {}, "layer 0 is None: fused kernels keep no weights"),
        (2.5 * torch.eye(3)[None, None], {}, "weights from 0 to 2.5, not 0 to 1"),
        (-torch.eye(3)[None, None], {}, "weights from -1 to"),
        (math.nan * torch.eye(3)[None, None], {}, "weights from nan"),
        (torch.full((1, 1, 3, 3), 1 / 3), {"causal": True}, "up to 0.333 on later tokens"),
        (torch.eye(2)[None, None], {}, "tokens is a list of 3, but maps have a length of 2"),
        (torch.eye(1025)[None, None], {}, "length is 1025, not a whole number from 1 to 1024"),
        (torch.ones(1, 257, 1, 1), {}, "heads is 257"),
        (torch.ones(257, 1, 1, 1), {}, "layers is 257"),
        (torch.eye(3)[None, None], {"loss": [1.0]}, "loss is not 2 numbers"),
        (torch.eye(3)[None, None], {"loss": [1.0, math.inf]}, "loss has a value that is no finite number"),
        (torch.eye(3)[None, None], {"gain": math.nan}, "gain has a value"),
        (torch.eye(3)[None, None], {"ablation": [[1.0, 2.0]]}, "ablation is not 1 × 1 numbers"),
        (torch.eye(3)[None, None], {"scores": {"a": [1.0]}}, r"scores\['a'\] is not 1 × 1 numbers"),
        (torch.eye(3)[None, None], {"about": 3}, "must be texts"),
        (torch.eye(3)[None, None], {"about": "x" * MOST_BYTES}, "bytes; at most 1,000,000"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_no_attention_is_refused_with_its_numbers(tmp_path, weights, more, says):
    with SummaryWriter(tmp_path) as writer, pytest.raises(ValueError, match=says):
        log_attention(writer, "mine", weights, ["a", "b", "c"], 0, **more)
    assert EventAccumulator(str(tmp_path)).Reload().Tags()["tensors"] == []


def test_steps_of_any_number_type_and_a_writer_of_anyone(tmp_path):
    class Mine(SummaryWriter):
        pass

    with Mine(tmp_path, max_queue=1, flush_secs=1, filename_suffix=".x") as writer:
        for step in (np.int64(5), torch.tensor(7), 9.0):
            log_attention(writer, "attention/mine", torch.eye(2)[None, None], ["a", "b"], step)
    assert [step for step, _, _ in recorded(tmp_path)] == [5, 7, 9]


def test_the_dashboard_is_imported_without_torch():
    code = """if True:
        import sys, dashboard, dashboard.config
        assert not {"torch", "numpy", "tensorboard"} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def header(**changes) -> bytes:
    sound = {
        "version": 1, "layers": 2, "heads": 3, "length": 2, "causal": True, "tokens": ["a", "b"],
        "scores": {"one": [[0, 0.5, 1]] * 2}, "loss": [1.5], "ablation": None, "gain": None, "about": "",
    }  # fmt: skip
    return json.dumps(sound | changes).encode()


def test_a_sound_header_comes_through_without_what_nobody_knows():
    assert read_header(header(more=1), 3) == json.loads(header())
    assert read_header(header(about="x", loss=None), 3)["loss"] is None


@pytest.mark.parametrize(
    ("blob", "says"),
    [
        (b"", "damaged"),
        (b"\xff{}", "damaged"),
        (b"[1]", "damaged"),
        (b"[" * 100_000, "damaged"),
        (b"9" * 10_000, "damaged"),
        (b" " * (MOST_BYTES + 1), "bytes; at most"),
        (header(version=2), "written in version 2 of the format, and this tab reads version 1; update"),
        (header(version=None), "version None"),
        (header(layers=True), "layers is True"),
        (header(layers=2.0), "layers is 2.0"),
        (header(layers=10**30), "layers is 1000"),
        (header(heads=0), "heads is 0"),
        (header(length=-1), "length is -1"),
        (header(length=3), "tokens is a list of 2, but maps have a length of 3"),
        (header(layers=3), "layers is 3, but the number of maps is 2"),
        (header(causal=1), "causal is 1"),
        (header(tokens="ab"), "tokens is 'ab'"),
        (header(tokens=["a", 1]), "must be texts"),
        (header(about=[]), "must be texts"),
        (header(scores=[1]), "scores is"),
        (header(scores={"one": [[1, 2, 3]]}), "2 × 3 numbers"),
        (header(scores={"one": [[1, 2, True]] * 2}), "no finite number"),
        (header(loss=[1, 2]), "loss is not 1 numbers"),
        (header(loss=[math.nan]), "no finite number"),
        (header(loss=[10**400]), "no finite number"),
        (header(ablation=[[1, 2, None]] * 2), "no finite number"),
        (header(gain="1"), "no finite number"),
    ],
)  # fmt: skip
def test_a_damaged_header_is_told_from_a_newer_one(blob, says):
    with pytest.raises(ValueError, match=says):
        read_header(blob, 3)


def examples(name: str) -> list[str]:
    text = (Path(__file__).parents[2] / "docs" / name).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)


def test_both_languages_have_the_same_two_examples():
    """But for the words in them."""

    def bare(example: str) -> str:
        return re.sub(r'"[^"\n]*"', '""', re.sub(r"  # .*", "", example))

    english, chinese = ([bare(one) for one in examples(f"dashboard{word}.md")] for word in ("", ".zh-CN"))
    assert english == chinese and len(english) == 2


def follow(number: int, folder, monkeypatch) -> dict:
    """What an example leaves behind when it is typed as it stands."""
    monkeypatch.chdir(folder)
    names = {}
    exec(compile(examples("dashboard.md")[number], "docs/dashboard.md", "exec"), names)
    return names


def test_the_example_with_multihead_attention(tmp_path, monkeypatch):
    names = follow(0, tmp_path, monkeypatch)
    steps = recorded(tmp_path / "runs" / "mine")
    assert [step for step, _, _ in steps] == list(range(20))
    _, header, maps = steps[-1]
    assert header["tokens"] == names["words"] and not header["causal"]
    assert (header["layers"], header["heads"]) == (1, 4)
    assert (decoded(header, maps) - names["weights"]).abs().max() <= 1 / 255


def test_the_example_with_transformers(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    names = follow(1, tmp_path, monkeypatch)
    ((step, header, maps),) = recorded(tmp_path / "runs" / "gpt2", "attention/gpt2")
    assert step == 0 and header["causal"] and (header["layers"], header["heads"]) == (2, 4)
    weights = torch.cat(names["out"].attentions)
    assert (decoded(header, maps) - weights).abs().max() <= 1 / 255
