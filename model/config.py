"""The settings of the model: plain values, no torch, so that `--help` and a typo stay fast."""

from dataclasses import dataclass

NORMS = ("rmsnorm", "layernorm")
MLPS = ("swiglu", "relu2", "gelu", "gelu_tanh")
POSITIONS = ("none", "sinusoidal", "learned", "rope", "alibi")
ATTENTIONS = ("fused", "explicit")


def choose(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a value outside a closed set, naming the set."""
    if value not in choices:
        raise ValueError(f"{key}={value}: not one of {' '.join(choices)}")


def between(key: str, value: float | None, least: float, most: float = float("inf")) -> None:
    """Refuse a number outside [least, most], nan and infinity; None means the setting is off."""
    if value is not None and not (least <= value <= most and abs(value) != float("inf")):
        limit = f"at least {least:g}" if most == float("inf") else f"between {least:g} and {most:g}"
        raise ValueError(f"{key}={value}: must be {limit}")


@dataclass
class ModelConfig:
    """The decoder. `d_head` and `d_ff` left empty become d_model / n_heads and 4 d_model
    (swiglu, which has a third matrix: 8/3 d_model, rounded up to 64)."""
    n_layers: int = 4
    n_heads: int = 4
    d_model: int = 128
    d_head: int | None = None
    d_ff: int | None = None
    context_length: int = 128
    dropout: float = 0.0
    token_dropout: float = 0.0
    attention_dropout: float = 0.0
    norm: str = "rmsnorm"
    norm_weight: bool = True
    norm_eps: float = 1e-6
    embed_norm: bool = True
    bigram_embedding: bool = False
    qk_norm: bool = True
    bias: bool = False
    tie_embeddings: bool = False
    mlp: str = "swiglu"

    def __post_init__(self) -> None:
        most = {"n_layers": 1000, "n_heads": 1024, "d_model": 65_536, "context_length": 2**20}
        for key, limit in most.items():
            between(f"model.{key}", getattr(self, key), 1, limit)
        choose("model.norm", self.norm, NORMS)
        choose("model.mlp", self.mlp, MLPS)
        between("model.dropout", self.dropout, 0, 0.99)
        between("model.token_dropout", self.token_dropout, 0, 0.99)
        between("model.attention_dropout", self.attention_dropout, 0, 0.99)
        between("model.norm_eps", self.norm_eps, 1e-12, 0.1)
        if self.d_head is None:
            if self.d_model % self.n_heads:
                misfit = f"model.n_heads={self.n_heads} does not divide model.d_model={self.d_model}"
                raise ValueError(f"{misfit}; change one of them, or set model.d_head")
            self.d_head = self.d_model // self.n_heads
        if self.d_ff is None:
            swiglu = -(-8 * self.d_model // (3 * 64)) * 64
            self.d_ff = swiglu if self.mlp == "swiglu" else 4 * self.d_model
        between("model.d_head", self.d_head, 1, 65_536)
        between("model.d_ff", self.d_ff, 1, 2**20)


@dataclass
class PositionConfig:
    """How order reaches the model; `theta` is RoPE's base and belongs to it alone."""
    name: str = "rope"
    theta: float | None = None

    def __post_init__(self) -> None:
        choose("position", self.name, POSITIONS)
        if self.name == "rope":
            self.theta = 10_000.0 if self.theta is None else self.theta
            between("position.theta", self.theta, 1)
        elif self.theta is not None:
            raise ValueError(f"position.theta={self.theta}: only position=rope has it, not {self.name}")


@dataclass
class AttentionConfig:
    """Which of the two equal computations runs: the fused kernel or the definition."""
    name: str = "fused"

    def __post_init__(self) -> None:
        choose("attention", self.name, ATTENTIONS)


def check_fit(model: ModelConfig, position: PositionConfig) -> None:
    """Refuse widths that an encoding cannot work with, naming both."""
    if position.name == "rope" and model.d_head % 2:
        raise ValueError(f"position=rope rotates pairs: model.d_head={model.d_head} is odd")
    if position.name == "sinusoidal" and model.d_model % 2:
        raise ValueError(f"position=sinusoidal pairs sine and cosine: model.d_model={model.d_model} is odd")
