"""A checkpoint is complete or absent.

    checkpoints/step-00001000/   model.safetensors  config.json
                                 training_state.safetensors  training_state.json  manifest.json
    checkpoints/best, last       text files, each naming such a folder

It is written beside, made durable, then renamed; nothing in it is ever unpickled, and no name found in
a run's folder can lead out of it.
"""

import hashlib
import json
import os
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from model import weights
from model.gpt import GPT
from training.optimizer import Muon
from training.step import NotFinite
from training.stopping import State

MEMORY = {Muon: ("momentum",), torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq")}
NAME = re.compile(r"step-(\d{8,})")
FILES = ("model.safetensors", "config.json", "training_state.safetensors", "training_state.json")


def _sync(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, text: str) -> None:
    """Replace a text file: all of the new text or all of the old."""
    beside = path.with_name(path.name + ".tmp")
    beside.write_text(text, encoding="utf-8")
    _sync(beside)
    os.replace(beside, path)
    _sync(path.parent)


def _digest(path: Path) -> dict:
    with open(path, "rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def folder_of(run: Path, step: int) -> Path:
    """Where the checkpoint of `step` is, or would be."""
    return run / "checkpoints" / f"step-{step:08d}"


def save(run: Path, model: GPT, optimizers: list[torch.optim.Optimizer], state: State) -> Path:
    """Write the checkpoint of state.step and let `last` name it. OSError when the disk is full, NotFinite
    for weights that are no longer numbers; what was saved before is untouched then."""
    if odd := [name for name, weight in model.named_parameters() if not weight.isfinite().all()]:
        raise NotFinite(f"step {state.step}: {odd[0]} is no longer finite")
    target = folder_of(run, state.step)
    beside = target.with_name(f".{target.name}.tmp")
    if target.exists() and fault(target):  # a damaged one, that a resumed run has come to again
        shutil.rmtree(target)
    if not target.exists():
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        try:
            weights.save(model, beside)
            save_file(optimizer_tensors(model, optimizers), beside / "training_state.safetensors")
            (beside / "training_state.json").write_text(json.dumps(asdict(state)), encoding="utf-8")
            manifest = {path.name: _digest(path) for path in sorted(beside.iterdir())}
            (beside / "manifest.json").write_text(json.dumps(manifest, indent=2), encoding="utf-8")
            for path in beside.iterdir():
                _sync(path)
        except BaseException as error:
            shutil.rmtree(beside, ignore_errors=True)
            if isinstance(error, SafetensorError):  # what it makes of a full disk
                raise OSError(str(error)) from error
            raise
        _sync(beside)
        os.replace(beside, target)
        _sync(target.parent)
    _write(target.parent / "last", target.name)
    return target


def mark_best(folder: Path) -> None:
    """Let `best` name this checkpoint."""
    _write(folder.parent / "best", folder.name)


def prune(run: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints, those that `best` and `last` name, and step 0, which
    shows what there was before any learning."""
    spared = {named_by(run, "best"), named_by(run, "last"), folder_of(run, 0)}
    for folder in steps(run)[:-keep]:
        if folder not in spared:
            shutil.rmtree(folder, ignore_errors=True)


def steps(run: Path) -> list[Path]:
    """All checkpoint folders of a run, oldest first."""
    found = [path for path in (run / "checkpoints").glob("step-*") if NAME.fullmatch(path.name)]
    return sorted((path for path in found if path.is_dir() and not path.is_symlink()), key=lambda p: p.name)


def named_by(run: Path, pointer: str) -> Path | None:
    """The checkpoint that `best` or `last` names; None if it names nothing that looks like one."""
    path = run / "checkpoints" / pointer
    try:
        name = path.read_text(encoding="utf-8")[:100].strip() if path.is_file() else ""
    except (OSError, UnicodeDecodeError):
        return None
    return next((folder for folder in steps(run) if folder.name == name), None)


def fault(folder: Path) -> str | None:
    """What is wrong with a checkpoint, in words, or None: every file has its size and checksum."""
    try:
        if links := [name for name in (*FILES, "manifest.json") if (folder / name).is_symlink()]:
            return f"{links[0]} is a link"
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        for name in FILES:
            if manifest[name] != _digest(folder / name):
                return f"{name} does not match its checksum"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"manifest.json: {type(error).__name__}: {error}"
    return None


def find(run: Path, which: str = "last", say=lambda line: None) -> Path:
    """A sound checkpoint: `best`, `last` or a step. Where `best` or `last` is damaged, the newest sound
    one, saying what was skipped. ValueError when there is none."""
    folders = steps(run)
    if not folders:
        raise ValueError(f"{run} has no checkpoint; run train.py first")
    if which not in ("best", "last"):
        chosen = [folder for folder in folders if which.isdecimal() and folder == folder_of(run, int(which))]
        if not chosen:
            have = " ".join(str(int(folder.name[5:])) for folder in folders)
            raise ValueError(f"checkpoint={which}: {run} has best last {have}")
        if problem := fault(chosen[0]):
            raise ValueError(f"checkpoint={which}: {problem}")
        return chosen[0]
    wanted = named_by(run, which)
    for folder in dict.fromkeys(([wanted] if wanted else []) + folders[::-1]):
        if not (problem := fault(folder)):
            return folder
        say(f"skipped {folder}: {problem}")
    raise ValueError(f"{run} has no sound checkpoint")


def optimizer_tensors(model: GPT, optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """What the optimizers remember, under "<parameter>/<what>"."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}/{key}": tensor.detach().cpu()
        for optimizer in optimizers
        for parameter, kept in optimizer.state.items()
        for key, tensor in kept.items()
    }


def read_state(folder: Path) -> State:
    """Where the run stood. ValueError where the file is not ours."""
    try:
        state = State(**json.loads((folder / "training_state.json").read_text(encoding="utf-8")))
        if folder.name != folder_of(folder, state.step).name:
            raise ValueError(f"it is of step {state.step}")
        return state
    except (OSError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{folder}/training_state.json: {error}") from error


def restore(folder: Path, model: GPT, optimizers: list[torch.optim.Optimizer]) -> State:
    """Put a checkpoint's weights and optimizer memory into place; returns where the run stood.

    ValueError where it does not fit the model."""
    saved = weights.load(folder)
    if saved.describe() != model.describe():
        raise ValueError(f"{folder}: its config.json describes another model than the settings do")
    model.load_state_dict(saved.state_dict())
    try:
        tensors = load_file(folder / "training_state.safetensors")
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{folder}: {error}") from error
    parameters = dict(model.named_parameters())
    owner = {p: optimizer for optimizer in optimizers for g in optimizer.param_groups for p in g["params"]}
    for full_name, tensor in tensors.items():
        name, _, key = full_name.rpartition("/")
        parameter = parameters.get(name)
        if parameter is None or key not in MEMORY[type(owner[parameter])]:
            raise ValueError(f"{folder}: {full_name} is no memory of this optimizer")
        if key != "step" and tensor.shape != parameter.shape:
            raise ValueError(f"{folder}: {full_name} is {tuple(tensor.shape)}, not {tuple(parameter.shape)}")
        owner[parameter].state[parameter][key] = tensor.to(parameter.device)
    return read_state(folder)


def last_good(run: Path) -> str:
    """The checkpoint to go on from, in words."""
    try:
        return f"the last good checkpoint is {find(run)}"
    except ValueError:
        return "nothing had been saved yet"
