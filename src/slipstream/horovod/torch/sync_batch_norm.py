"""Batch normalisation over the batches of all ranks."""

# Its methods have other names for their arguments.
# pyright: reportIncompatibleMethodOverride=false
# Its weight and bias may be None, whatever its types say.
# pyright: reportUnnecessaryComparison=false

from __future__ import annotations

import torch
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]

from slipstream.horovod.job import job
from slipstream.horovod.reductions import Sum
from slipstream.horovod.torch.calls import allreduce


class SyncBatchNorm(_BatchNorm):
    """Normalises by the mean and variance of all ranks' batches together, in training.

    Two allreduces of a number per channel forward, and as many backward. Batches may differ in
    size.

    Args:
        num_features: Number of channels.
        eps: Number added to the variance.
        momentum: Weight of the newest batch in the running mean and variance; None for their
            average over all steps.
        affine: Whether there is a weight and a bias per channel.
        track_running_stats: Whether a running mean and variance are kept, for evaluation.
    """

    def _check_input_dim(self, batch: torch.Tensor) -> None:
        if batch.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {batch.dim()}D input)")

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Normalise a batch of shape (N, channels, ...)."""
        self._check_input_dim(batch)
        is_own = not self.training and self.track_running_stats
        if is_own or job().world.size == 1:
            return super().forward(batch)
        others = [d for d in range(batch.dim()) if d != 1]
        whole = batch if batch.dtype == torch.float64 else batch.float()
        mean, variance, count = self._moments(whole, others)
        self._track(mean.detach(), variance.detach(), count)
        shape = [1, -1, *[1] * (batch.dim() - 2)]
        scale = torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        normal = (whole - mean.view(shape)) * scale.view(shape)
        result = normal if self.bias is None else normal + self.bias.view(shape)
        return result.to(batch.dtype)

    def _moments(
        self, batch: torch.Tensor, others: list[int]
    ) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Return mean and variance of each channel, and of how many elements they are."""
        own = torch.tensor([batch.numel() // batch.shape[1]], dtype=batch.dtype)
        sums = allreduce(torch.cat([batch.sum(others), own]), op=Sum)
        mean = sums[:-1] / sums[-1]
        shape = [1, -1, *[1] * (batch.dim() - 2)]
        squares = ((batch - mean.view(shape)) ** 2).sum(others)
        return mean, allreduce(squares, op=Sum) / sums[-1], int(sums[-1].item())

    def _track(self, mean: torch.Tensor, variance: torch.Tensor, count: int) -> None:
        momentum = self._momentum()
        if self.running_mean is None or self.running_var is None:
            return
        unbiased = variance * (count / max(1, count - 1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)

    def _momentum(self) -> float:
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        if self.momentum is not None:
            return self.momentum
        return 1.0 / float(self.num_batches_tracked or 1)
