"""The settings of what is shown: plain values, no torch."""

from dataclasses import dataclass


@dataclass
class LogConfig:
    """How often something is written for TensorBoard, in steps; 0 = never."""

    attention_every: int = 50
    sample_every: int = 200
    histograms: bool = False

    def __post_init__(self) -> None:
        for key in ("attention_every", "sample_every"):
            if getattr(self, key) < 0:
                raise ValueError(f"log.{key}={getattr(self, key)}: must be at least 0 (0 = never)")
