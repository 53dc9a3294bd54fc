"""A PyTorch module with the parameters of a real model, whose layers only wait.

No gradients are computed. Dense gradients lie in .grad of the parameters from the start, as if a
GPU had written them there. The backward pass returns None for dense gradients, so autograd leaves
.grad unchanged but still runs the hooks of DDP and other libraries. Therefore gradients take no CPU
time. A library whose buckets share memory with .grad copies nothing. Sparse gradients are made anew
in each step.
"""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from slipstream.bench.limits import BACKWARD_PER_FORWARD
from slipstream.bench.models import ModelLayer, Parameter, ReplayModel
from slipstream.bench.replay.device import ReplayDevice


class ReplayModule(torch.nn.Module):
    """The layers of a model in sequence; the forward pass maps a scalar to a scalar.

    Args:
        replayed: Model that defines the parameters.
        device: Simulated device, which takes as much time as the computation on a GPU.
        compute_seconds: Seconds of the forward and backward passes together.
        seed: Seed of the random gradients (default 0). Callers pass the number of the rank, so that
            gradients differ between ranks.
        sparse: Whether embeddings that the model marks as sparse have sparse gradients (default
            False).
        place: Device that has the parameters and gradients (default: the CPU).
    """

    def __init__(
        self,
        replayed: ReplayModel,
        device: ReplayDevice,
        compute_seconds: float,
        *,
        seed: int = 0,
        sparse: bool = False,
        place: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.place = place or torch.device("cpu")
        self._device = device
        generator = torch.Generator().manual_seed(seed)
        per_flop = compute_seconds / replayed.flops / (1 + BACKWARD_PER_FORWARD)
        layers: list[ReplayLayer] = []
        parameters: dict[str, torch.nn.Parameter] = {}
        for layer in replayed.layers:
            replay_layer = ReplayLayer(
                layer,
                device,
                layer.flops * per_flop,
                tied=[parameters[name] for name in layer.tied],
                batch=replayed.batch if sparse else 0,
                generator=generator,
                place=self.place,
            )
            parameters.update(replay_layer.parameters_by_name)
            layers.append(replay_layer)
        self.layers = torch.nn.ModuleList(layers)
        self._replay_layers = layers

    def forward(self, scalar: torch.Tensor) -> torch.Tensor:
        """Call all layers in order; each one waits for the time of its forward pass."""
        self._device.begin_step()
        for layer in self._replay_layers:
            scalar = layer(scalar)
        return scalar

    def sparse_parameters(self) -> list[torch.nn.Parameter]:
        """Return the parameters with sparse gradients."""
        return [
            parameter
            for module in self.modules()
            if isinstance(module, torch.nn.Embedding)
            for parameter in module.parameters()
        ]


class ReplayLayer(torch.nn.Module):
    """One layer of a `ReplayModule`, which waits instead of computing.

    Args:
        layer: Layer of the model that defines the parameters.
        device: Simulated device, which takes as much time as the computation on a GPU.
        forward_seconds: Seconds of the forward pass.
        tied: Parameters of earlier layers that this layer uses, too. The gradients of tied
            parameters are ready when the backward passes of both layers have ended.
        batch: Number of samples in a step, which determines the non-zero rows of sparse gradients;
            0 makes all gradients dense.
        generator: Random generator for dense gradients and for the non-zero rows of sparse
            gradients.
        place: Device that has the parameters and gradients.
    """

    def __init__(
        self,
        layer: ModelLayer,
        device: ReplayDevice,
        forward_seconds: float,
        *,
        tied: Sequence[torch.nn.Parameter],
        batch: int,
        generator: torch.Generator,
        place: torch.device,
    ) -> None:
        super().__init__()
        self._device = device
        self._place = place
        self._forward_seconds = forward_seconds
        self._rows: list[torch.Tensor | None] = []
        # a tuple, because only the layer that owns the parameters may register them
        self._tied = tuple(tied)
        self.parameters_by_name: dict[str, torch.nn.Parameter] = {}
        for index, parameter in enumerate(layer.parameters):
            if batch and parameter.rows_per_sample:
                self._add_sparse(f"part{index}", parameter, batch, generator)
            else:
                self._add_dense(f"part{index}", parameter, generator)

    def _add_dense(self, name: str, parameter: Parameter, generator: torch.Generator) -> None:
        value = torch.nn.Parameter(torch.zeros(parameter.shape, device=self._place))
        value.grad = torch.empty(parameter.shape).normal_(generator=generator).to(self._place)
        self.register_parameter(name, value)
        self.parameters_by_name[parameter.name] = value
        self._rows.append(None)

    def _add_sparse(
        self, name: str, parameter: Parameter, batch: int, generator: torch.Generator
    ) -> None:
        """Add an embedding module, because DDP rejects sparse gradients of other modules."""
        rows, width = parameter.shape
        table = torch.nn.Embedding(rows, width, sparse=True, _weight=torch.zeros(rows, width))
        self.add_module(name, table)
        (self.parameters_by_name[parameter.name],) = table.parameters()
        touched = torch.randperm(rows, generator=generator)[: parameter.touched_rows(batch)]
        self._rows.append(touched.sort().values)

    def forward(self, scalar: torch.Tensor) -> torch.Tensor:
        """Block for the time of the layer's forward pass."""
        parameters = [*self.parameters_by_name.values(), *self._tied]
        return _Compute.apply(scalar, self, *parameters)

    def compute_forward(self) -> None:
        """Block for the time of the layer's forward pass."""
        self._device.compute(self._forward_seconds, may_wait=True)

    def compute_backward(self) -> list[torch.Tensor | None]:
        """Block for the time of the layer's backward pass, and return the new gradients.

        The result is None for a dense gradient, because it is already in .grad.
        """
        self._device.compute(self._forward_seconds * BACKWARD_PER_FORWARD, may_wait=False)
        gradients: list[torch.Tensor | None] = [
            None if rows is None else _sparse_gradient(parameter, rows)
            for parameter, rows in zip(self.parameters_by_name.values(), self._rows, strict=True)
        ]
        return [*gradients, *(None for _ in self._tied)]


def _sparse_gradient(parameter: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    values = torch.ones(len(rows), parameter.shape[1])
    return torch.sparse_coo_tensor(
        rows[None], values, parameter.shape, is_coalesced=True, check_invariants=False
    )


class _Compute(torch.autograd.Function):
    """Autograd function that waits for the time of a layer's forward and backward passes.

    The inputs of the function are a scalar, the layer, and the parameters of the layer.
    """

    @staticmethod
    def forward(
        ctx: Any, scalar: torch.Tensor, layer: ReplayLayer, *_: torch.Tensor
    ) -> torch.Tensor:
        ctx.layer = layer
        layer.compute_forward()
        return scalar.view_as(scalar)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        return (gradient, None, *ctx.layer.compute_backward())
