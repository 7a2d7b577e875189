"""Train a small GPT and watch it in TensorBoard."""

from dataclasses import dataclass

from dashboard.config import LogConfig
from data.config import DataConfig, TokenizerConfig
from model.config import AttentionConfig, ModelConfig, PositionConfig, check_fit
from training.config import LoopConfig, OptimizerConfig, ScheduleConfig


@dataclass
class TrainConfig:
    """Every setting of a run, a room at a time."""

    model: ModelConfig
    position: PositionConfig
    attention: AttentionConfig
    data: DataConfig
    tokenizer: TokenizerConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    train: LoopConfig
    log: LogConfig
    run_dir: str | None = None
    resume: str | None = None
    init_from: str | None = None
    like: str | None = None

    def __post_init__(self) -> None:
        check_fit(self.model, self.position)
