"""A PyTorch module with a model's parameters, computed by a device that only takes the time.

Gradients are not computed. Dense ones lie in the parameters' .grad from the start, as a GPU would
have written them, and the backward pass returns "no addition", upon which autograd leaves .grad
alone and runs the hooks of DDP and of others just the same. So no CPU time goes into gradients,
and whoever keeps .grad as a view of a bucket copies nothing. Sparse ones are made anew each step.
"""

# PyTorch's stubs leave some of its types open.
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
    """The layers of a model in a row; its forward pass takes and returns a scalar.

    Args:
        replayed: Model whose parameters the module has.
        device: Device that takes the time of the compute.
        compute_seconds: Seconds of the forward and backward passes together.
        seed: Seed of the gradients: the rank, so that gradients differ between ranks.
        sparse: whether embeddings have sparse gradients where the model has them.
    """

    def __init__(
        self,
        replayed: ReplayModel,
        device: ReplayDevice,
        compute_seconds: float,
        *,
        seed: int = 0,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self._device = device
        generator = torch.Generator().manual_seed(seed)
        per_flop = compute_seconds / replayed.flops / (1 + BACKWARD_PER_FORWARD)
        layers: list[ReplayLayer] = []
        owned: dict[str, torch.nn.Parameter] = {}
        for layer in replayed.layers:
            made = ReplayLayer(
                layer,
                device,
                layer.flops * per_flop,
                tied=[owned[name] for name in layer.tied],
                batch=replayed.batch if sparse else 0,
                generator=generator,
            )
            owned.update(made.parameters_by_name)
            layers.append(made)
        self.layers = torch.nn.ModuleList(layers)
        self._replay_layers = layers

    def forward(self, scalar: torch.Tensor) -> torch.Tensor:
        """Run all layers, and block for the compute of the forward pass."""
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
    """One layer of a model.

    Args:
        layer: Layer of the model whose parameters it has.
        device: Device that takes the time of the compute.
        forward_seconds: Seconds of its forward pass.
        tied: parameters of earlier layers that it uses; their gradients are ready when both layers'
            backward passes have ended.
        batch: samples of a step, of which sparse gradients have the rows; 0 makes all dense.
        generator: Random generator of dense gradients and of the rows of sparse ones.
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
    ) -> None:
        super().__init__()
        self._device = device
        self._forward_seconds = forward_seconds
        self._rows: list[torch.Tensor | None] = []
        self._tied = tuple(tied)  # not a list of PyTorch's: the owner has them already
        self.parameters_by_name: dict[str, torch.nn.Parameter] = {}
        for index, parameter in enumerate(layer.parameters):
            if batch and parameter.rows_per_sample:
                self._add_sparse(f"part{index}", parameter, batch, generator)
            else:
                self._add_dense(f"part{index}", parameter, generator)

    def _add_dense(self, name: str, parameter: Parameter, generator: torch.Generator) -> None:
        value = torch.nn.Parameter(torch.zeros(parameter.shape))
        value.grad = torch.empty(parameter.shape).normal_(generator=generator)
        self.register_parameter(name, value)
        self.parameters_by_name[parameter.name] = value
        self._rows.append(None)

    def _add_sparse(
        self, name: str, parameter: Parameter, batch: int, generator: torch.Generator
    ) -> None:
        """Add an embedding: DDP expects sparse gradients of no other module."""
        rows, width = parameter.shape
        held = torch.nn.Embedding(rows, width, sparse=True, _weight=torch.zeros(rows, width))
        self.add_module(name, held)
        (self.parameters_by_name[parameter.name],) = held.parameters()
        drawn = torch.randperm(rows, generator=generator)[: parameter.touched_rows(batch)]
        self._rows.append(drawn.sort().values)

    def forward(self, scalar: torch.Tensor) -> torch.Tensor:
        """Block for the layer's compute."""
        parameters = [*self.parameters_by_name.values(), *self._tied]
        return _Compute.apply(scalar, self, *parameters)

    def compute_forward(self) -> None:
        """Block for the compute of the forward pass."""
        self._device.compute(self._forward_seconds, may_wait=True)

    def compute_backward(self) -> list[torch.Tensor | None]:
        """Block for the compute of the backward pass, and return what is added to the gradients."""
        self._device.compute(self._forward_seconds * BACKWARD_PER_FORWARD, may_wait=False)
        added: list[torch.Tensor | None] = [
            None if rows is None else _sparse_gradient(parameter, rows)
            for parameter, rows in zip(self.parameters_by_name.values(), self._rows, strict=True)
        ]
        return [*added, *(None for _ in self._tied)]


def _sparse_gradient(parameter: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    values = torch.ones(len(rows), parameter.shape[1])
    return torch.sparse_coo_tensor(
        rows[None], values, parameter.shape, is_coalesced=True, check_invariants=False
    )


class _Compute(torch.autograd.Function):
    """Blocks in both passes. Inputs: a scalar, the layer, and the parameters that it uses."""

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
