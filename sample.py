"""Write text with a trained model."""

from dataclasses import dataclass


@dataclass
class SampleConfig:
    """What to write, and how; 0 or null switches a filter off."""

    run: str | None = None  # default: the newest with a sound checkpoint
    checkpoint: str = "best"  # best, last or a step
    prompt: str | None = None
    prompt_file: str | None = None  # - = standard input
    max_new_tokens: int = 300
    temperature: float = 0.8
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    stop: str | None = None
    num_samples: int = 1
    seed: int = 1
    cache: bool = True
    out: str | None = None
    attention: bool = False
