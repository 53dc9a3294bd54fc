"""Sparse mixtures of experts: a router chooses the few experts of each token.

Shapes: e is the number of experts, a experts per token, n tokens in a batch, c hidden size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Experts(nn.Module):
    """Gated feed-forward experts (Jiang et al., 2024, arXiv 2401.04088), as grouped products.

    The choice of experts depends on the data. A trace has no data, so all experts get the same
    number of tokens, as with a balanced router. n * a is rounded up to a multiple of e.

    Args:
        hidden: Hidden size c, the number of elements per token.
        inner: Number of elements per token inside an expert.
        experts: Number of experts, e.
        active: Number of experts per token, a.
    """

    def __init__(self, hidden: int, inner: int, experts: int, active: int) -> None:
        super().__init__()
        self.experts, self.active = experts, active
        self.router = nn.Linear(hidden, experts, bias=False)
        self.gate = nn.Parameter(torch.empty(experts, hidden, inner))
        self.up = nn.Parameter(torch.empty(experts, hidden, inner))
        self.down = nn.Parameter(torch.empty(experts, inner, hidden))

    def forward(self, x: Tensor) -> Tensor:
        """Return new hidden states, (batch, tokens, c) like `x`."""
        tokens = x.flatten(0, 1)
        chances = self.router(tokens).float().softmax(-1)
        shares, chosen = chances.topk(self.active, dim=-1)
        shares = (shares / shares.sum(-1, keepdim=True)).to(x.dtype)
        # Indices of the (token, choice) pairs, sorted by expert.
        order = chosen.flatten().argsort()
        padded = functional.pad(order, (0, -len(order) % self.experts))
        rows = tokens[padded // self.active].view(self.experts, -1, x.shape[-1])
        inner = functional.silu(torch.bmm(rows, self.gate)) * torch.bmm(rows, self.up)
        made = torch.bmm(inner, self.down).flatten(0, 1)[: len(order)]
        weighted = made * shares.flatten()[order].unsqueeze(1)
        result = torch.zeros_like(tokens, dtype=weighted.dtype)
        return result.index_add(0, order // self.active, weighted).view_as(x)
