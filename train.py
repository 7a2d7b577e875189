"""Train a small GPT and watch it in TensorBoard."""

from dataclasses import dataclass, field

from dashboard.config import LogConfig
from data.config import DataConfig, TokenizerConfig
from model.config import AttentionConfig, ModelConfig, PositionConfig, check_fit
from training.config import LoopConfig, OptimizerConfig, ScheduleConfig


@dataclass
class TrainConfig:
    """Every setting of a run, a room at a time."""

    model: ModelConfig = field(default_factory=ModelConfig)
    position: PositionConfig = field(default_factory=PositionConfig)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    train: LoopConfig = field(default_factory=LoopConfig)
    log: LogConfig = field(default_factory=LogConfig)
    run_dir: str | None = None
    resume: str | None = None
    init_from: str | None = None
    like: str | None = None

    def __post_init__(self) -> None:
        check_fit(self.model, self.position)
