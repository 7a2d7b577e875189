"""A folder ⇄ a model: model.safetensors, each tensor under its parameter's name, and config.json."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode

from model.config import AttentionConfig, ModelConfig, PositionConfig
from model.gpt import GPT


class Undrawn(TorchFunctionMode):
    """While this is on, nothing of torch.nn.init does anything: the weights come from a file. (Drawing
    numbers on the meta device would import PyTorch's compiler, which takes a second.)"""
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__module__", None) == "torch.nn.init":
            return (*args, *(kwargs or {}).values())[0]
        return function(*args, **(kwargs or {}))


def empty(*described) -> GPT:
    """GPT(*described), of which only the shapes exist."""
    with torch.device("meta"), Undrawn():
        return GPT(*described)


def save(model: GPT, folder: Path) -> None:
    """Write both files; the same weights give the same bytes."""
    weights = {name: tensor.detach().contiguous().cpu() for name, tensor in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(model.describe(), indent=2), encoding="utf-8")


def load(folder: Path, *, device: str | torch.device = "cpu") -> GPT:
    """The model in `folder`, in eval mode. ValueError where the files are missing, damaged or do not fit
    each other; nothing larger than the file is ever allocated."""
    try:
        settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config = ModelConfig(**settings["model"])
        parts = PositionConfig(**settings["position"]), AttentionConfig(**settings["attention"])
        with safe_open(folder / "model.safetensors", "pt", device=str(device)) as file:
            pieces = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            shapes = {name: f"{piece.get_dtype()} {piece.get_shape()}" for name, piece in pieces.items()}
            if config.n_layers > len(shapes):
                raise ValueError(f"{config.n_layers} layers by config.json, but {len(shapes)} tensors")
            model = empty(settings["vocab_size"], config, *parts)
            wanted = {name: f"F32 {list(t.shape)}" for name, t in model.state_dict().items()}
            if odd := sorted(name for name in wanted | shapes if wanted.get(name) != shapes.get(name)):
                found, meant = shapes.get(odd[0]), wanted.get(odd[0])
                raise ValueError(f"{odd[0]} is {found} in the file, {meant} by config.json")
            model.load_state_dict({name: file.get_tensor(name) for name in shapes}, assign=True)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise ValueError(f"{folder} holds no readable model: {type(error).__name__}: {error}") from error
    return model.to(device).eval()  # the tables of positions are in no file
