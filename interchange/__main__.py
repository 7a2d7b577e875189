"""A run as a model folder of transformers:  python -m interchange export <run> <folder>"""

import json
import sys
from pathlib import Path
from textwrap import indent

import torch

from data.tokenizer import Tokenizer
from interchange.folder import write
from model.generate import Sampling, generate
from model.weights import load
from settings import folder_given, load_config
from train import TrainConfig, summary
from training.checkpoint import find, read_state


def export(run: Path, folder: Path) -> None:
    """The run's best checkpoint, its tokenizer and a model card. ValueError where that cannot be."""
    checkpoint, tokenizer = find(run, "best"), Tokenizer.load(run / "tokenizer.json")
    config, model = load_config(run / "config.yaml", TrainConfig), load(checkpoint)
    state, end = read_state(checkpoint), tokenizer.end_of_text
    write(model, folder, end)
    token = None if end is None else tokenizer.wrapped.id_to_token(end)
    known = dict.fromkeys(("bos_token", "eos_token", "pad_token"), token)
    known |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": model.config.context_length}
    tokenizer.save(folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(json.dumps(known, indent=2), encoding="utf-8")
    drawn = generate(model, torch.tensor([[state.start]]), 100, Sampling(0.8, min_p=0.1), seed=1, end=end)
    text = tokenizer.decode([int(id) for id in drawn if int(id) != end])
    card = Path(__file__).with_name("card.md").read_text(encoding="utf-8").format(
        parameters=sum(p.numel() for p in model.parameters()), summary=summary(config), tokens=state.tokens,
        data=config.data.name or config.data.source, step=state.step, name=folder.name,
        loss=state.best_val_loss or float("nan"), sample=indent(text.strip(), "    ", lambda line: True),
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def main(words: list[str]) -> int:
    try:
        if len(words) != 3 or words[0] != "export":
            raise ValueError(__doc__)
        export(folder_given(words[1], words[1]), Path(words[2]))
    except (ValueError, OSError) as error:
        print(f"interchange: {error}", file=sys.stderr)
        return 2
    print(f"written  {words[2]}\npublish  hf upload <your name>/{Path(words[2]).name} {words[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
