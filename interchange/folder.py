"""A model folder of transformers ⇄ a GPT: safetensors and JSON, nothing else."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from interchange.config import ACTIVATIONS, Described, describe, home, weight_files
from model.config import between
from model.gpt import GPT
from model.weights import empty

BUFFERS = ("rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias")  # tables that older files carry along


def write(model: GPT, folder: Path, end: int | None) -> None:
    """A new folder for `AutoModelForCausalLM.from_pretrained`; `end` is the token that ends a text.
    ValueError, before it is made, for a model that has no home."""
    family, position, ours = home(model.describe()), model.parts[0], model.config
    config, state = replace(ours, **family.form), model.state_dict()
    if ours.embed_norm and not config.embed_norm:  # the rows of a table, normed, are another table
        state["head.weight"] = state.get("head.weight", state["embed.weight"])
        state["embed.weight"] = model.embed_norm(model.embed.weight).detach()
        config = replace(config, tie_embeddings=False)
    folder.mkdir(parents=True)
    weights = {}
    for name, shape in empty(model.vocab_size, config, position).state_dict().items():
        absent = torch.ones if name.endswith(".weight") else torch.zeros  # a gain, or a bias
        tensor, names = state[name] if name in state else absent(shape.shape), family.names(name)
        for their, rows in zip(names, tensor.chunk(len(names)), strict=True):
            weights[their] = family.turn(their, rows, config.d_head).contiguous().cpu()
    theirs = {"model_type": family.model_type, "architectures": [family.architecture], "dtype": "float32"}
    theirs |= {"vocab_size": model.vocab_size, **family.fixed}
    for key, names in family.settings.items():
        theirs |= dict.fromkeys(names.split(), getattr(config, key))
    theirs[family.settings["mlp"]] = next(name for name, ours in ACTIVATIONS.items() if ours == config.mlp)
    if position.name == "rope":
        theirs |= {"num_key_value_heads": config.n_heads, "rope_theta": position.theta}
    theirs |= dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), end)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(theirs, indent=2), encoding="utf-8")


def read(
    folder: Path, say: Callable[[str], None] = lambda line: None, *,
    context_length: int | None = None, vocab_size: int | None = None,
) -> GPT:
    """The model in one of their folders, in eval mode, float32, cut to a shorter context and a smaller
    vocabulary if asked. ValueError where files and settings do not fit each other."""
    found = describe(folder)
    config, position, V = found.model, found.position, vocab_size or found.vocab_size
    try:
        between("tokens in tokenizer.json", V, 1, found.vocab_size)
        theirs = stored(found, weight_files(folder))
        wanted = empty(found.vocab_size, config, position).state_dict()
        cuts = {"embed.weight": V, "head.weight": V, "position.table": context_length}
        state = {name: gathered(found, theirs, name, t.shape)[: cuts.get(name)] for name, t in wanted.items()}
        if theirs:
            raise ValueError(f"{min(theirs)} has no place in this model")
    except (ValueError, TypeError, OSError, RuntimeError, SafetensorError) as error:
        raise ValueError(f"{folder}: {error}") from error
    config = replace(config, context_length=min(context_length or 2**62, config.context_length))
    model = empty(V, config, position)
    model.load_state_dict(state, assign=True)
    if (times := config.n_heads // found.kv_heads) > 1:
        say(f"weights  {times} heads share each key and value; here each has a copy: {times}× the cache")
    return model.eval()


def stored(found: Described, files: list[Path]) -> dict[str, Tensor]:
    """What the files hold, under full names, of which some files leave the first part out."""
    tensors = {name: tensor for path in files for name, tensor in load_file(path).items()}
    if found.model.tie_embeddings:
        tensors.pop("lm_head.weight", None)  # the table once more
    first = found.family.layers.partition(".")[0] + "."
    full = {name: "" if name.startswith((first, "lm_head.")) else first for name in tensors}
    return {full[name] + name: tensor for name, tensor in tensors.items() if not name.endswith(BUFFERS)}


def gathered(found: Described, theirs: dict[str, Tensor], name: str, shape: torch.Size) -> Tensor:
    """One of our parameters, put together from what is taken out of theirs. The keys and values of
    grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245) are repeated for every head."""
    parts, D, names = [], found.model.d_head, found.family.names(name)
    times = found.model.n_heads // found.kv_heads
    for their in names:
        tensor = theirs.pop(their, None)
        if tensor is None or tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise ValueError(f"{their} is in no file" if tensor is None else f"{their} is of {tensor.dtype}")
        part = found.family.turn(their, tensor.float(), D)
        if their.rpartition(".")[0].endswith(("k_proj", "v_proj")):
            part = part.unflatten(0, (-1, D)).repeat_interleave(times, 0).flatten(0, 1)
        if [len(names) * len(part), *part.shape[1:]] != list(shape):
            raise ValueError(f"{their} is {list(tensor.shape)}, which does not fit config.json")
        parts.append(part)
    return torch.cat(parts)
