"""Better weights from gradients: Muon for the matrices inside the blocks, AdamW for the rest."""

from collections import defaultdict

import torch
from torch import Tensor, nn

from training.config import OptimizerConfig
from training.speed import has_bfloat16

# Linears that hold several projections, one below the other: each is a matrix of its own to Muon.
STACKED = {"qkv.weight": 3, "gate_up.weight": 2}


def orthogonalise(matrices: Tensor, steps: int = 5) -> Tensor:
    """U Vᵀ of each matrix U S Vᵀ (N, rows, columns), about: singular values end between 0.7 and 1.2.

    A quintic Newton–Schulz iteration (Jordan et al. 2024, kellerjordan.github.io/posts/muon), in bfloat16
    as there, but in float32 on a CPU without units for it, where such products are ruinously slow.
    """
    x = matrices.bfloat16() if has_bfloat16(matrices.device.type) else matrices
    if tall := x.size(1) > x.size(2):
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = 3.4445 * x + torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315) @ x
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised: every direction of a matrix moves by the same amount.

    The step is lr · √max(1, rows / columns); the weight decay is decoupled. Parameters are given as
    `pieces` → list of 2-D weights that hold so many matrices each. Matrices of one shape are
    orthogonalised together.
    """

    def __init__(
        self, weights: dict[int, list[nn.Parameter]], lr: float, weight_decay: float, momentum: float = 0.95
    ) -> None:
        groups = [{"params": params, "pieces": pieces} for pieces, params in weights.items()]
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        """One update from the gradients at hand."""
        for group in self.param_groups:
            weights, lr = group["params"], group["lr"]
            gradients = [weight.grad for weight in weights]
            buffers = [
                self.state[weight].setdefault("momentum", torch.zeros_like(weight)) for weight in weights
            ]
            torch._foreach_lerp_(buffers, gradients, 1 - group["momentum"])
            updates = torch._foreach_lerp(gradients, buffers, group["momentum"])  # Nesterov
            torch._foreach_mul_(weights, 1 - lr * group["weight_decay"])
            alike = defaultdict(list)  # (rows, columns) → [(matrix, its update)]
            for weight, update in zip(weights, updates, strict=True):
                for matrix, change in zip(*(x.chunk(group["pieces"]) for x in (weight, update)), strict=True):
                    alike[matrix.shape].append((matrix, change))
            for (rows, columns), pairs in alike.items():
                matrices, changes = zip(*pairs, strict=True)
                changes = orthogonalise(torch.stack(changes)).unbind()
                torch._foreach_sub_(matrices, changes, alpha=lr * max(1, rows / columns) ** 0.5)


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
    optimizers = [adamw]
    if muon:
        optimizers.insert(0, Muon(muon, config.matrix_lr, config.weight_decay, config.momentum))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return optimizers
