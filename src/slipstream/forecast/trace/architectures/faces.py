"""Face recognition: IResNet, MobileFaceNet and the softmax with a margin that trains them."""

# PyTorch's autograd functions and hooks are not typed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from slipstream.forecast.trace.architectures.convolutions import conv_norm

_IRESNET_BLOCKS = {50: (3, 4, 14, 3), 100: (3, 13, 30, 3)}
# Fields of each stage of MobileFaceNet: channels, expanded channels of the first block, expanded
# channels of the further blocks, and number of further blocks.
_MOBILE_STAGES = ((64, 128, 128, 4), (128, 256, 256, 6), (128, 512, 256, 2))


class IResNet(nn.Module):
    """Residual network of ArcFace (Deng et al., 2019, arXiv 1801.07698), "R100".

    A block consists of a norm, a 3x3 convolution, a norm, PReLU, a 3x3 convolution and a norm. No
    activation follows the sum with the shortcut.

    Args:
        depth: Number of layers with weights: 50 or 100 (default).
        embedding: Length of an embedding, the vector that describes a face (default 512).
        dropout: Dropout probability before the linear layer (default 0.4).
    """

    def __init__(self, depth: int = 100, embedding: int = 512, dropout: float = 0.4) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 64, 3, activation=partial(nn.PReLU, 64))]
        inputs = 64
        for stage, blocks in enumerate(_IRESNET_BLOCKS[depth]):
            for index in range(blocks):
                layers.append(_IResNetBlock(inputs, 64 << stage, 1 if index else 2))
                inputs = 64 << stage
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(inputs))
        self.embed = nn.Sequential(
            nn.Dropout(dropout),
            nn.Flatten(),
            nn.Linear(inputs * 7 * 7, embedding),
            nn.BatchNorm1d(embedding),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return embeddings (batch, embedding) of images (batch, 3, 112, 112)."""
        return self.embed(self.features(images))


class MobileFaceNet(nn.Module):
    """MobileFaceNet (Chen et al., 2018, arXiv 1804.07573), "Y1" of InsightFace.

    Args:
        embedding: Length of an embedding, the vector that describes a face (default 128).
    """

    def __init__(self, embedding: int = 128) -> None:
        super().__init__()
        layers: list[nn.Module] = [_active(3, 64, 3, 2), _active(64, 64, 3, groups=64)]
        inputs = 64
        for outputs, first, others, repeats in _MOBILE_STAGES:
            layers.append(_inverted(inputs, first, outputs, 2))
            inputs = outputs
            layers += [_Added(_inverted(inputs, others, inputs, 1)) for _ in range(repeats)]
        self.features = nn.Sequential(
            *layers,
            _active(inputs, 512),
            conv_norm(512, 512, 7, padding=0, groups=512, activation=None),
        )
        self.embed = nn.Sequential(
            nn.Flatten(), nn.Linear(512, embedding, bias=False), nn.BatchNorm1d(embedding)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return embeddings (batch, embedding) of images (batch, 3, 112, 112)."""
        return self.embed(self.features(images))


class MarginSoftmax(nn.Module):
    """Softmax over the cosines between embeddings and class centres, with an angular margin.

    Args:
        embedding: Length of an embedding, the vector that describes a face.
        classes: Number of classes, which are people.
        sampled: Share of the centres that is used in a step (default 1). A new sample is drawn for
            each step (Partial FC, arXiv 2010.05222).
        margin: Radians to add to the angle between a face and the centre of its person (default
            0.5).
        scale: Factor on the cosines (default 64).
    """

    def __init__(
        self,
        embedding: int,
        classes: int,
        *,
        sampled: float = 1.0,
        margin: float = 0.5,
        scale: float = 64.0,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(classes, embedding))
        self.num_sampled = math.ceil(classes * sampled)
        self.margin, self.scale = margin, scale

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss.

        Args:
            embeddings: Embeddings of faces (batch, embedding).
            labels: Index of each face's class centre, int64 (batch). The index counts only the
                centres that are used in the step.
        """
        centres = self.weight
        if self.num_sampled < len(centres):
            centres = centres.index_select(0, torch.randperm(len(centres))[: self.num_sampled])
        cosines = functional.linear(functional.normalize(embeddings), functional.normalize(centres))
        targets = labels.unsqueeze(1)
        angle = torch.acos(cosines.gather(1, targets).clamp(-1.0, 1.0))
        scores = cosines.scatter(1, targets, torch.cos(angle + self.margin))
        return functional.cross_entropy(scores * self.scale, labels)


class PartialFc(nn.Module):
    """`MarginSoftmax` as the authors of Partial FC run it: in fp32 and without fused operators.

    The ranks divide the centres; each rank compares its centres with the faces of all ranks.

    All faces are assumed to belong to centres of the traced rank. That holds for one rank of the
    authors' benchmark, whose data have a single label.

    Source: insightface, recognition/arcface_torch in 2021: partial_fc.py, losses.py, dataset.py.

    Args:
        embedding: Length of an embedding, the vector that describes a face.
        classes: Number of classes, which are people.
        ranks: Number of ranks that divide the centres, at least 1.
        sampled: Share of the centres that is used in a step (default 1).
        margin: Radians to add to the angle between a face and the centre of its person (default
            0.5).
        scale: Factor on the cosines (default 64).
    """

    def __init__(
        self,
        embedding: int,
        classes: int,
        *,
        ranks: int,
        sampled: float = 1.0,
        margin: float = 0.5,
        scale: float = 64.0,
    ) -> None:
        super().__init__()
        # The parameter has the rows of all ranks, because names and sizes of parameters are global.
        self.weight = nn.Parameter(torch.zeros(classes, embedding))
        self.ranks = ranks
        self.num_centres = math.ceil(classes / ranks)
        self.num_sampled = math.ceil(self.num_centres * sampled)
        self.margin, self.scale = margin, scale

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss.

        Args:
            embeddings: Embeddings of the faces of this rank (batch, embedding).
            labels: Index of each face's class centre, int64 (batch). The index counts only the
                centres that are used in the step.
        """
        targets = labels.repeat(self.ranks).unsqueeze(1)
        # Autocast would multiply in 16 bits.
        with torch.autocast("cpu", enabled=False):
            faces = functional.normalize(embeddings.float()).repeat(self.ranks, 1)
            cosines: Tensor = _apply(_Cosines, faces, self._centres())
            scores = self._with_margin(cosines, targets)
            softmax: tuple[Tensor, ...] = _apply(_SharedSoftmax, scores, targets)
        # Local variables of the authors' function stay alive until its backward pass has run.
        held = [scores, *softmax[1:]]

        def end(_: Tensor) -> None:
            held.clear()

        faces.register_hook(end)
        return softmax[0]

    def _centres(self) -> Tensor:
        centres: Tensor = _apply(_Own, self.weight, self.num_centres, self.num_sampled)
        return functional.normalize(centres)

    def _with_margin(self, cosines: Tensor, targets: Tensor) -> Tensor:
        """Return scores (faces, centres); the scores overwrite the cosines in memory.

        Args:
            cosines: Cosines of the angles between faces and centres (faces, centres).
            targets: Index of the centre of each face, int64 (faces, 1).
        """
        margins = torch.zeros_like(cosines).scatter_(1, targets, self.margin)
        rows = torch.arange(len(targets))
        cosines.acos_()
        cosines[rows] += margins
        return cosines.cos_().mul_(self.scale)


def _apply(function: Any, *arguments: Any) -> Any:
    return function.apply(*arguments)


class _Own(torch.autograd.Function):
    """Differentiable choice of the rows of a weight on one rank, or of a sample of them."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: int, count: int) -> Tensor:
        ctx.save_for_backward(weight)
        of_rank = weight[:rows]
        return of_rank if count == rows else of_rank.index_select(0, torch.randperm(rows)[:count])

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor, None, None]:
        return torch.empty_like(ctx.saved_tensors[0]), None, None


class _Cosines(torch.autograd.Function):
    """Matrix product whose gradients are computed in fp32, even if autocast is on."""

    @staticmethod
    def forward(ctx: Any, faces: Tensor, centres: Tensor) -> Tensor:
        ctx.save_for_backward(faces, centres)
        return functional.linear(faces, centres)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        faces, centres = ctx.saved_tensors
        with torch.autocast("cpu", enabled=False):
            return gradients[0] @ centres, gradients[0].t() @ faces


class _SharedSoftmax(torch.autograd.Function):
    """Mean cross-entropy; `forward` also returns the gradient and the one-hot targets."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows = torch.arange(len(targets))
        shares = torch.exp(scores - scores.max(dim=1, keepdim=True)[0])
        shares.div_(shares.sum(dim=1, keepdim=True))
        ones = torch.zeros_like(scores).scatter_(1, targets, 1)
        loss = -shares[rows].gather(1, targets).clamp_min_(1e-30).log_().mean()
        shares[rows] -= ones
        shares.div_(len(targets))
        ctx.save_for_backward(shares)
        ctx.mark_non_differentiable(shares, ones)
        ctx.set_materialize_grads(False)
        return loss, shares, ones

    @staticmethod
    def backward(ctx: Any, *_: Tensor | None) -> tuple[Tensor, None]:
        return ctx.saved_tensors[0], None


class FaceTraining(nn.Module):
    """A training step of face recognition: a network and the centres of its classes.

    Args:
        network: Module that makes embeddings.
        head: Module that compares embeddings to centres.
    """

    def __init__(self, network: nn.Module, head: MarginSoftmax | PartialFc) -> None:
        super().__init__()
        self.network, self.head = network, head

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss.

        Args:
            images: Images (batch, 3, 112, 112).
            labels: Class of each image, int64 (batch).
        """
        return self.head(self.network(images), labels)


def face_training(
    network: Callable[[int], nn.Module],
    *,
    embedding: int,
    classes: int = 85742,
    sampled: float = 1.0,
    ranks: int | None = None,
) -> FaceTraining:
    """Return a face network and the loss that trains it, as one module.

    Args:
        network: Function that makes the network for a given length of embeddings.
        embedding: Length of an embedding, the vector that describes a face.
        classes: Number of people (default 85742, as in MS1M-ArcFace or "emore"; Glint360k has
            360232).
        sampled: Share of the centres that is used in a step (default 1).
        ranks: Number of ranks that divide the centres with `PartialFc` (default None:
            `MarginSoftmax`).
    """
    if ranks is None:
        head = MarginSoftmax(embedding, classes, sampled=sampled)
    else:
        head = PartialFc(embedding, classes, ranks=int(ranks), sampled=sampled)
    return FaceTraining(network(embedding), head)


class _Added(nn.Module):
    def __init__(self, main: nn.Module) -> None:
        super().__init__()
        self.main = main

    def forward(self, x: Tensor) -> Tensor:
        return x + self.main(x)


class _IResNetBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.BatchNorm2d(inputs),
            conv_norm(inputs, outputs, 3, activation=partial(nn.PReLU, outputs)),
            conv_norm(outputs, outputs, 3, stride, activation=None),
        )
        resize = stride > 1 or inputs != outputs
        self.shortcut = (
            conv_norm(inputs, outputs, 1, stride, activation=None) if resize else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.main(x) + self.shortcut(x)


def _active(
    inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return conv_norm(
        inputs, outputs, kernel, stride, groups=groups, activation=partial(nn.PReLU, outputs)
    )


def _inverted(inputs: int, expanded: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        _active(inputs, expanded),
        _active(expanded, expanded, 3, stride, groups=expanded),
        conv_norm(expanded, outputs, activation=None),
    )
