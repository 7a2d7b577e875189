"""The settings of text and tokens: plain values, no torch."""

from dataclasses import dataclass

SOURCES = ("pydocs", "stdlib", "file", "hub")
TOKENIZERS = ("bpe", "char", "byte")


@dataclass
class DataConfig:
    """Where text comes from. `source` is the reader; the rest are its settings (see conf/data/)."""

    source: str = "pydocs"
    path: str | None = None  # file, folder or glob
    val_path: str | None = None
    val_fraction: float = 0.1
    separator: str | None = None
    column: str = "text"
    name: str | None = None  # on the Hub
    config: str | None = None
    split: str = "train"
    streaming: bool = False
    num_proc: int = 2

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ValueError(f"data.source={self.source}: not one of {' '.join(SOURCES)}")
        if not 0 < self.val_fraction < 1:
            raise ValueError(f"data.val_fraction={self.val_fraction}: must be between 0 and 1")
        if self.num_proc < 1:
            raise ValueError(f"data.num_proc={self.num_proc}: must be at least 1")
        if self.separator == "":
            raise ValueError("data.separator is empty: leave it out, or name what stands between documents")


@dataclass
class TokenizerConfig:
    """How text becomes tokens; `path` takes any tokenizer.json instead."""

    name: str = "bpe"
    vocab_size: int = 2048  # bpe only; the others have what their alphabet has
    path: str | None = None

    def __post_init__(self) -> None:
        if self.name not in TOKENIZERS:
            raise ValueError(f"tokenizer={self.name}: not one of {' '.join(TOKENIZERS)}")
        if not 1 <= self.vocab_size <= 1_000_000:
            raise ValueError(f"tokenizer.vocab_size={self.vocab_size}: must be between 1 and 1,000,000")
