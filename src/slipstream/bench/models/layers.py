"""Descriptions of models, from which training steps are simulated: layers, parameters, FLOPs.

A multiplication and an addition are two FLOPs. The FLOPs of activations, pooling and normalisations
are not counted; together they are below 1 % of the FLOPs of every model in this package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """One trained tensor.

    Args:
        name: Name of the tensor, unique in its model.
        shape: Shape of the tensor.
        rows_per_sample: Highest number of non-zero rows that one sample adds to a sparse gradient;
            0 for a dense gradient.
    """

    name: str
    shape: tuple[int, ...]
    rows_per_sample: int = 0

    @property
    def num_elements(self) -> int:
        """Number of elements of the tensor."""
        return math.prod(self.shape)

    def touched_rows(self, batch: int) -> int:
        """Return how many rows of this tensor's gradient can have non-zero elements.

        Args:
            batch: Number of samples in a step.
        """
        rows = self.shape[0]
        return min(rows, batch * self.rows_per_sample) if self.rows_per_sample else rows

    def touched_elements(self, batch: int) -> int:
        """Return how many elements of this tensor's gradient can be non-zero.

        Args:
            batch: Number of samples in a step.
        """
        return self.touched_rows(batch) * math.prod(self.shape[1:])


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelLayer:
    """One or more layers that run together, so that their gradients are ready at the same time.

    Args:
        name: Name of the layer, unique in its model.
        parameters: Parameters that the layer owns.
        flops: FLOPs of the forward pass of one sample.
        tied: Names of other layers' parameters that this layer uses, too (default none).
    """

    name: str
    parameters: tuple[Parameter, ...]
    flops: int
    tied: tuple[str, ...] = ()

    @property
    def num_elements(self) -> int:
        """Number of elements of the layer's own parameters."""
        return sum(parameter.num_elements for parameter in self.parameters)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayModel:
    """A model as layers in forward order; gradients become ready in the reverse order.

    Args:
        name: Name on the command line.
        layers: Layers in forward order.
        batch: Number of samples in a step of one process.
        sample: Description of one sample, as readable text.
    """

    name: str
    layers: tuple[ModelLayer, ...]
    batch: int
    sample: str

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All trained tensors, in the order of their layers."""
        return tuple(parameter for layer in self.layers for parameter in layer.parameters)

    @property
    def num_elements(self) -> int:
        """Number of elements of all parameters."""
        return sum(layer.num_elements for layer in self.layers)

    @property
    def flops(self) -> int:
        """FLOPs of the forward pass of one sample."""
        return sum(layer.flops for layer in self.layers)


def convolution(
    name: str,
    channels: tuple[int, int],
    kernel: tuple[int, int],
    output: int,
    *,
    bias: bool = False,
) -> ModelLayer:
    """Return a layer with a 2-D convolution.

    Args:
        name: Name of the layer.
        channels: Number of input channels and number of output channels.
        kernel: Height and width of the kernel.
        output: Height and width of the output in pixels.
        bias: Whether the layer has a bias (default False).
    """
    channels_in, channels_out = channels
    weight = Parameter(name=f"{name}.weight", shape=(channels_out, channels_in, *kernel))
    biases = (Parameter(name=f"{name}.bias", shape=(channels_out,)),) if bias else ()
    flops = 2 * weight.num_elements * output**2
    return ModelLayer(name=name, parameters=(weight, *biases), flops=flops)


def linear(
    name: str,
    features: tuple[int, int],
    *,
    tokens: int = 1,
    bias: bool = True,
    more_flops: int = 0,
) -> ModelLayer:
    """Return a dense layer, which multiplies its input by a matrix.

    Args:
        name: Name of the layer.
        features: Number of input features and number of output features.
        tokens: Number of tokens in a sample; the layer is applied to each token (default 1).
        bias: Whether the layer has a bias (default True).
        more_flops: FLOPs of operators without parameters that run with this layer, such as
            attention scores (default 0).
    """
    features_in, features_out = features
    weight = Parameter(name=f"{name}.weight", shape=(features_out, features_in))
    biases = (Parameter(name=f"{name}.bias", shape=(features_out,)),) if bias else ()
    flops = 2 * weight.num_elements * tokens + more_flops
    return ModelLayer(name=name, parameters=(weight, *biases), flops=flops)


def normalisation(name: str, features: int) -> ModelLayer:
    """Return a batch or layer normalisation with a scale and a shift for each feature."""
    scale = Parameter(name=f"{name}.weight", shape=(features,))
    shift = Parameter(name=f"{name}.bias", shape=(features,))
    return ModelLayer(name=name, parameters=(scale, shift), flops=0)


def table(name: str, shape: tuple[int, int], *, rows_per_sample: int = 0) -> Parameter:
    """Return the description of an embedding's weights, one row for each embedded value.

    Args:
        name: Name of the layer that looks up the rows.
        shape: Number of rows, and number of elements in a row.
        rows_per_sample: Highest number of rows that one sample uses; see `Parameter`.
    """
    return Parameter(name=f"{name}.weight", shape=shape, rows_per_sample=rows_per_sample)


def embedding(name: str, tables: Sequence[Parameter]) -> ModelLayer:
    """Return a layer that looks up rows in tables, which costs memory traffic but no FLOPs."""
    return ModelLayer(name=name, parameters=tuple(tables), flops=0)
