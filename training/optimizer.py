"""Better weights from gradients: Muon for the matrices inside the blocks, AdamW for the rest."""

from collections import defaultdict

import torch
from torch import Tensor, nn

from training.config import OptimizerConfig

# Linears that hold several projections, one below the other: each is a matrix of its own to Muon.
STACKED = {"qkv.weight": 3, "gate_up.weight": 2}


def orthogonalise(matrices: Tensor, steps: int = 5) -> Tensor:
    """U Vᵀ of each matrix U S Vᵀ (N, rows, columns), about: singular values end between 0.7 and 1.2.

    A quintic Newton–Schulz iteration (Jordan et al. 2024, kellerjordan.github.io/posts/muon). In float32
    on a CPU, where bfloat16 products without hardware for them are ruinously slow.
    """
    x = matrices if matrices.device.type == "cpu" else matrices.bfloat16()
    if tall := x.size(1) > x.size(2):
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = 3.4445 * x + (2.0315 * (gram @ gram) - 4.7750 * gram) @ x
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised: every direction of a matrix moves by the same amount.

    The step is lr · √max(1, rows / columns); the weight decay is decoupled. Parameters are given as
    `pieces` → list of 2-D weights that hold so many matrices each. Matrices of one shape are
    orthogonalised together.
    """

    def __init__(self, weights: dict[int, list[nn.Parameter]], lr: float, weight_decay: float) -> None:
        groups = [{"params": params, "pieces": pieces} for pieces, params in weights.items()]
        super().__init__(groups, {"lr": lr, "momentum": 0.95, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        """One update from the gradients at hand."""
        wide = defaultdict(list)  # (rows, columns) with rows ≤ columns → [(weight, update)]
        for group in self.param_groups:
            for weight in group["params"]:
                buffer = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
                buffer.lerp_(weight.grad, 1 - group["momentum"])
                update = weight.grad.lerp(buffer, group["momentum"])  # Nesterov
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                chunks = zip(weight.chunk(group["pieces"]), update.chunk(group["pieces"]), strict=True)
                for piece, change in chunks:
                    rows, columns = piece.shape
                    scale = group["lr"] * max(1, rows / columns) ** 0.5
                    if rows > columns:
                        piece, change = piece.mT, change.mT
                    wide[piece.shape].append((piece, change, scale))
        for alike in wide.values():
            updates = orthogonalise(torch.stack([change for _, change, _ in alike]))
            for (piece, _, scale), update in zip(alike, updates, strict=True):
                piece.sub_(update, alpha=scale)


def pieces(name: str) -> int:
    """How many matrices the Linear called `name` holds."""
    return next((count for suffix, count in STACKED.items() if name.endswith(suffix)), 1)


def make_optimizers(model: nn.Module, config: OptimizerConfig) -> list[torch.optim.Optimizer]:
    """One optimizer, or two; each group's `initial_lr` is what the schedule multiplies.

    Weight decay acts on the matrices that multiply (a tied embedding is one of them), not on tables
    that are looked up, nor on vectors.
    """
    muon: dict[int, list[nn.Parameter]] = defaultdict(list)
    decayed, plain = [], []
    tied = not any(name == "head.weight" for name, _ in model.named_parameters())
    for name, weight in model.named_parameters():
        if name.startswith("blocks.") and weight.dim() == 2:
            (muon[pieces(name)] if config.name == "muon" else decayed).append(weight)
        elif name == "head.weight" or (tied and name == "embed.weight"):
            decayed.append(weight)
        else:
            plain.append(weight)
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    fused = model.embed.weight.device.type in ("cpu", "cuda")
    adamw = torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.lr, betas=(config.beta1, config.beta2), fused=fused,
    )
    optimizers = [Muon(muon, config.matrix_lr, config.weight_decay), adamw] if muon else [adamw]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return optimizers
