"""The settings of training: plain values, no torch."""

from dataclasses import dataclass

from model.config import between, choose

OPTIMIZERS = ("muon", "adamw")
SCHEDULES = ("linear", "cosine", "constant")
DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = ("auto", "float32", "bfloat16")
SWITCHES = ("auto", "true", "false")


@dataclass
class OptimizerConfig:
    """`lr` steps AdamW's part; `matrix_lr` and `momentum` Muon's: the 2-D weights inside the blocks."""

    name: str = "muon"
    lr: float = 0.008
    matrix_lr: float | None = None
    momentum: float | None = None
    weight_decay: float = 0.05
    beta1: float = 0.9
    beta2: float = 0.95

    def __post_init__(self) -> None:
        choose("optimizer", self.name, OPTIMIZERS)
        if self.name == "muon":
            self.matrix_lr = 0.05 if self.matrix_lr is None else self.matrix_lr
            self.momentum = 0.95 if self.momentum is None else self.momentum
        for key in ("matrix_lr", "momentum"):
            if self.name != "muon" and (value := getattr(self, key)) is not None:
                raise ValueError(f"optimizer.{key}={value}: only optimizer=muon has it")
        between("optimizer.lr", self.lr, 0)
        between("optimizer.matrix_lr", self.matrix_lr, 0)
        between("optimizer.momentum", self.momentum, 0, 0.999999)
        between("optimizer.weight_decay", self.weight_decay, 0)
        between("optimizer.beta1", self.beta1, 0, 0.999999)
        between("optimizer.beta2", self.beta2, 0, 0.999999)


@dataclass
class ScheduleConfig:
    """The learning rate over the run: warm-up, then the shape `name`; `cooldown` is the share of
    the run over which `linear` falls to zero."""

    name: str = "linear"
    warmup_steps: int = 20
    cooldown: float | None = None

    def __post_init__(self) -> None:
        choose("schedule", self.name, SCHEDULES)
        between("schedule.warmup_steps", self.warmup_steps, 0)
        if self.name == "linear":
            self.cooldown = 0.7 if self.cooldown is None else self.cooldown
        elif self.cooldown is not None:
            raise ValueError(f"schedule.cooldown={self.cooldown}: only schedule=linear has it")
        between("schedule.cooldown", self.cooldown, 0, 1)


@dataclass
class LoopConfig:
    """The training loop; whichever of the four limits comes first ends it."""

    max_steps: int = 800
    max_minutes: float | None = None
    target_loss: float | None = None
    patience: int | None = None  # evaluations without a better validation loss
    batch_size: int = 16
    grad_accum: int = 1
    grad_clip: float | None = 1.0
    eval_every: int = 200
    checkpoint_every: int = 200
    keep: int = 2
    seed: int = 1
    device: str = "auto"
    dtype: str = "auto"
    compile: str = "auto"

    def __post_init__(self) -> None:
        self.compile = self.compile.lower()
        choose("train.device", self.device, DEVICES)
        choose("train.dtype", self.dtype, DTYPES)
        choose("train.compile", self.compile, SWITCHES)
        for key in ("max_steps", "grad_accum", "eval_every", "checkpoint_every", "keep"):
            between(f"train.{key}", getattr(self, key), 1)
        between("train.batch_size", self.batch_size, 1, 2**20)
        between("train.patience", self.patience, 1)
        between("train.max_minutes", self.max_minutes, 0)
        between("train.target_loss", self.target_loss, 0)
        between("train.grad_clip", self.grad_clip, 0)
        between("train.seed", self.seed, 0, 2**63 - 1)
        if self.batch_size % self.grad_accum:
            raise ValueError(
                f"train.grad_accum={self.grad_accum} does not divide train.batch_size={self.batch_size}"
            )
