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
from slipstream.bench.models import Layer, Model, Parameter
from slipstream.bench.replay_device import Device


class ReplayModule(torch.nn.Module):
    """The layers of a model in a row; its forward pass takes and returns a scalar.

    Args:
        replayed: whose parameters it has.
        device: that takes the time.
        compute_seconds: of forward and backward passes together.
        sparse: whether embeddings have sparse gradients where the model has them.
    """

    def __init__(
        self, replayed: Model, device: Device, compute_seconds: float, *, sparse: bool = False
    ) -> None:
        super().__init__()
        self._device = device
        per_flop = compute_seconds / replayed.flops / (1 + BACKWARD_PER_FORWARD)
        layers: list[ReplayLayer] = []
        owned: dict[str, torch.nn.Parameter] = {}
        for layer in replayed.layers:
            batch = replayed.batch if sparse else 0
            made = ReplayLayer(layer, device, layer.flops * per_flop, batch)
            made.use([owned[name] for name in layer.tied])
            owned.update(made.parameters_by_name)
            layers.append(made)
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, scalar: torch.Tensor) -> torch.Tensor:
        """Runs all layers; blocks for the compute of the forward pass."""
        self._device.begin_step()
        for layer in self.layers:
            scalar = layer(scalar)
        return scalar

    def fill_gradients(self, seed: int) -> None:
        """Puts normally distributed numbers into all dense gradients, and none into sparse ones.

        Args:
            seed: of the numbers; the rank, so that gradients differ between ranks.
        """
        generator = torch.Generator().manual_seed(seed)
        sparse = {id(parameter) for parameter in self.sparse_parameters()}
        for parameter in self.parameters():
            if id(parameter) not in sparse:
                parameter.grad = torch.empty_like(parameter).normal_(generator=generator)

    def sparse_parameters(self) -> list[torch.nn.Parameter]:
        """Returns the parameters with sparse gradients."""
        return [
            parameter
            for module in self.modules()
            if isinstance(module, torch.nn.Embedding)
            for parameter in module.parameters()
        ]


class ReplayLayer(torch.nn.Module):
    """One layer of a model.

    Args:
        layer: whose parameters it has.
        device: that takes the time.
        forward_seconds: of its forward pass.
        batch: samples of a step, of which sparse gradients have the rows; 0 makes all dense.
    """

    def __init__(self, layer: Layer, device: Device, forward_seconds: float, batch: int) -> None:
        super().__init__()
        self._device = device
        self._forward_seconds = forward_seconds
        self._num_rows: list[int] = []
        self._tied: list[torch.nn.Parameter] = []
        self.parameters_by_name: dict[str, torch.nn.Parameter] = {}
        for index, parameter in enumerate(layer.parameters):
            is_sparse = bool(batch and parameter.rows_per_sample)
            self._add(f"part{index}", parameter, is_sparse)
            self._num_rows.append(parameter.touched_rows(batch) if is_sparse else 0)

    def _add(self, name: str, parameter: Parameter, is_sparse: bool) -> None:
        """Adds a parameter; DDP expects sparse gradients of embeddings only."""
        value = torch.nn.Parameter(torch.zeros(parameter.shape))
        if is_sparse:
            rows, width = parameter.shape
            self.add_module(name, torch.nn.Embedding(rows, width, sparse=True, _weight=value))
            value = self.get_submodule(name).weight
            assert isinstance(value, torch.nn.Parameter)
        else:
            self.register_parameter(name, value)
        self.parameters_by_name[parameter.name] = value

    def use(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Ties parameters of other layers to this one.

        Args:
            parameters: whose gradients are ready only when this layer's backward pass has ended.
        """
        # Not a list of a module's: the owner has them already.
        self._tied = list(parameters)

    def forward(self, scalar: torch.Tensor) -> torch.Tensor:
        """Blocks for the layer's compute."""
        parameters = [*self.parameters_by_name.values(), *self._tied]
        return _Compute.apply(scalar, self, *parameters)

    def compute_forward(self) -> None:
        """Blocks for the compute of the forward pass."""
        self._device.compute(self._forward_seconds, may_wait=True)

    def compute_backward(self) -> list[torch.Tensor | None]:
        """Blocks for the compute of the backward pass; returns what is added to the gradients."""
        self._device.compute(self._forward_seconds * BACKWARD_PER_FORWARD, may_wait=False)
        added: list[torch.Tensor | None] = [
            _sparse_gradient(parameter, rows) if rows else None
            for parameter, rows in zip(
                self.parameters_by_name.values(), self._num_rows, strict=True
            )
        ]
        return [*added, *(None for _ in self._tied)]


def _sparse_gradient(parameter: torch.Tensor, num_rows: int) -> torch.Tensor:
    """Returns a gradient of random rows: as many draws as tokens, each row once."""
    rows = torch.randint(parameter.shape[0], (num_rows,)).unique()
    values = torch.ones(len(rows), parameter.shape[1])
    return torch.sparse_coo_tensor(rows[None], values, parameter.shape, is_coalesced=True)


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
