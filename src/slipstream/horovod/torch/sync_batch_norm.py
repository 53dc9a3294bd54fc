"""Batch normalization over the batches of all ranks."""

# The arguments of its methods have other names than in the base class.
# pyright: reportIncompatibleMethodOverride=false
# Weight and bias may be None, although their declared types exclude it.
# pyright: reportUnnecessaryComparison=false

from __future__ import annotations

import torch
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]

from slipstream.horovod.job import job
from slipstream.horovod.reductions import Sum
from slipstream.horovod.torch.calls import allreduce


class SyncBatchNorm(_BatchNorm):
    """Batch normalization that, in training, uses the mean and variance over all ranks' batches.

    The forward pass does two allreduces, and so does the backward pass. An allreduce has about one
    number per channel. The ranks' batches may differ in size.

    Args:
        num_features: Number of channels.
        eps: Number that is added to the variance, so that no division by 0 occurs (default 1e-5).
        momentum: Weight of the newest batch in the running mean and variance (default 0.1); None
            gives all batches equal weight.
        affine: Whether each channel has a weight and a bias (default True).
        track_running_stats: Whether a running mean and variance are computed for evaluation
            (default True).
    """

    def _check_input_dim(self, batch: torch.Tensor) -> None:
        if batch.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {batch.dim()}D input)")

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Normalize a batch of shape (N, channels, ...)."""
        self._check_input_dim(batch)
        uses_running_stats = not self.training and self.track_running_stats
        if uses_running_stats or job().world.size == 1:
            return super().forward(batch)
        precise = batch if batch.dtype == torch.float64 else batch.float()
        mean, variance, count = self._moments(precise)
        self._track(mean.detach(), variance.detach(), count)
        shape = [1, -1, *[1] * (batch.dim() - 2)]
        scale = torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        result = (precise - mean.view(shape)) * scale.view(shape)
        if self.bias is not None:
            result = result + self.bias.view(shape)
        return result.to(batch.dtype)

    def _moments(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Return the mean, the variance and the number of elements of each channel on all ranks."""
        dims = [dim for dim in range(batch.dim()) if dim != 1]
        own_count = batch.new_tensor([batch.numel() // batch.shape[1]])
        sums = allreduce(torch.cat([batch.sum(dims), own_count]), op=Sum)
        mean = sums[:-1] / sums[-1]
        shape = [1, -1, *[1] * (batch.dim() - 2)]
        squares = ((batch - mean.view(shape)) ** 2).sum(dims)
        return mean, allreduce(squares, op=Sum) / sums[-1], int(sums[-1].item())

    def _track(self, mean: torch.Tensor, variance: torch.Tensor, count: int) -> None:
        """Update the running mean and variance."""
        momentum = self._momentum()
        if self.running_mean is None or self.running_var is None:
            return
        unbiased = variance * (count / max(1, count - 1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)

    def _momentum(self) -> float:
        """Increment the number of batches; return the new batch's weight in the running values."""
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        if self.momentum is not None:
            return self.momentum
        return 1.0 / float(self.num_batches_tracked or 1)
