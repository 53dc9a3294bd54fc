"""Description of a model for a replay: layers in forward order, parameters and FLOPs.

A multiplication and an addition are two FLOPs. Activations, pooling and the arithmetic of
normalisations count as nothing: together they are below 1% of every model here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """One tensor that is trained.

    Args:
        name: unique in its model.
        shape: Shape of the tensor.
        rows_per_sample: Largest number of rows that one sample touches, if the gradient is sparse
            in its first dimension; 0 for a dense gradient.
    """

    name: str
    shape: tuple[int, ...]
    rows_per_sample: int = 0

    @property
    def num_elements(self) -> int:
        """Number of elements of the tensor."""
        return math.prod(self.shape)

    def touched_rows(self, batch: int) -> int:
        """Return how many rows of the gradient can differ from zero.

        Args:
            batch: samples of a step.
        """
        rows = self.shape[0]
        return min(rows, batch * self.rows_per_sample) if self.rows_per_sample else rows

    def touched_elements(self, batch: int) -> int:
        """Return how many elements of the gradient can differ from zero.

        Args:
            batch: samples of a step.
        """
        return self.touched_rows(batch) * math.prod(self.shape[1:])


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelLayer:
    """Layers that run as one, so that their gradients are ready at the same moment.

    Args:
        name: unique in its model.
        parameters: Parameters of the layer itself; empty if it only uses another layer's.
        flops: FLOPs of the forward pass of one sample.
        tied: names of another layer's parameters that this layer uses too.
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
    """The layers in the order of the forward pass; gradients become ready in the reverse order.

    Args:
        name: Name on the command line.
        layers: Layers in forward order.
        batch: Samples of a step of one process.
        sample: Description of one sample, for people.
    """

    name: str
    layers: tuple[ModelLayer, ...]
    batch: int
    sample: str

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All tensors that are trained, in the order of the layers that own them."""
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
    """Return a 2-D convolution.

    Args:
        name: Name of the layer.
        channels: Input and output channels.
        kernel: height and width.
        output: height and width of what comes out, in pixels.
        bias: whether it adds one.
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
    """Return a matrix product.

    Args:
        name: Name of the layer.
        features: Input and output features.
        tokens: Tokens of one sample; the layer is applied to each.
        bias: whether it adds one.
        more_flops: FLOPs of operators without parameters that run with this layer, such as
            attention scores.
    """
    features_in, features_out = features
    weight = Parameter(name=f"{name}.weight", shape=(features_out, features_in))
    biases = (Parameter(name=f"{name}.bias", shape=(features_out,)),) if bias else ()
    flops = 2 * weight.num_elements * tokens + more_flops
    return ModelLayer(name=name, parameters=(weight, *biases), flops=flops)


def normalisation(name: str, features: int) -> ModelLayer:
    """Return a batch or layer normalisation: a scale and a shift for each feature."""
    scale = Parameter(name=f"{name}.weight", shape=(features,))
    shift = Parameter(name=f"{name}.bias", shape=(features,))
    return ModelLayer(name=name, parameters=(scale, shift), flops=0)


def table(name: str, shape: tuple[int, int], *, rows_per_sample: int = 0) -> Parameter:
    """Return the weights of an embedding.

    Args:
        name: Name of the layer that looks up the rows.
        shape: rows, and elements of a row.
        rows_per_sample: Largest number of rows that one sample touches; see `Parameter`.
    """
    return Parameter(name=f"{name}.weight", shape=shape, rows_per_sample=rows_per_sample)


def embedding(name: str, tables: Sequence[Parameter]) -> ModelLayer:
    """Return a look-up, which costs memory traffic and no FLOPs."""
    return ModelLayer(name=name, parameters=tuple(tables), flops=0)
