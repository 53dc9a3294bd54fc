"""Input batches of architectures. All elements are zero, because only shapes matter."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from slipstream.errors import UsageError
from slipstream.forecast.trace.architectures.transformer import TransformerSize

_integers = partial(torch.zeros, dtype=torch.int64)


def images(batch: int, *, side: int) -> tuple[Tensor, ...]:
    """Return images of shape (batch, 3, side, side).

    Args:
        batch: Number of images.
        side: Width and height of an image, in pixels.
    """
    return (torch.zeros(batch, 3, side, side),)


def faces(batch: int) -> tuple[Tensor, ...]:
    """Return images of shape (batch, 3, 112, 112), and the index of the person on each image.

    Args:
        batch: Number of images.
    """
    return (*images(batch, side=112), _integers(batch))


def tokens(batch: int, *, length: int) -> tuple[Tensor, ...]:
    """Return token ids of shape (batch, length).

    Args:
        batch: Number of sequences.
        length: Number of tokens in a sequence.
    """
    return (_integers(batch, length),)


def masked(batch: int, *, length: int, predictions: int) -> tuple[Tensor, ...]:
    """Return the arguments of `BertPretraining.forward`.

    Args:
        batch: Number of sequences.
        length: Number of tokens in a sequence.
        predictions: Number of masked tokens in a sequence.
    """
    sequences, guesses = (batch, length), (batch, predictions)
    shapes = (sequences, sequences, guesses, guesses, (batch,))
    return tuple(_integers(shape) for shape in shapes)


def questions(batch: int, *, length: int) -> tuple[Tensor, ...]:
    """Return the arguments of `BertAnswers.forward`.

    Args:
        batch: Number of sequences.
        length: Number of tokens in a sequence.
    """
    return tuple(_integers(shape) for shape in ((batch, length), (batch, length), (batch, 2)))


def translations(batch: int, *, length: int = 32) -> tuple[Tensor, ...]:
    """Return sentences of two languages: two tensors of shape (batch / length, length).

    Args:
        batch: Number of tokens of each language.
        length: Number of tokens in a sentence (default 32).

    Raises:
        UsageError: A sentence has more than `batch` tokens.
    """
    if batch < length:
        raise UsageError(
            f"the batch has {batch} tokens, but a sentence has {length}; use a larger batch"
        )
    shape = (batch // length, length)
    return (_integers(shape), _integers(shape))


def remembered(batch: int, *, size: TransformerSize) -> tuple[Tensor, ...]:
    """Return the arguments of `TransformerXL.forward`.

    Args:
        batch: Number of sequences.
        size: Dimensions of the model.
    """
    shape = (batch, size.positions)
    memory = torch.zeros(size.layers, *shape, size.hidden)
    return (_integers(shape), _integers(shape), memory)


def clicks(batch: int, *, fields: int, dense: int = 13) -> tuple[Tensor, ...]:
    """Return the arguments of `DLRM.forward`.

    Args:
        batch: Number of examples.
        fields: Number of embedding tables.
        dense: Number of dense features of an example (default 13).
    """
    return (torch.zeros(batch, dense), _integers(batch, fields))


def wide_clicks(
    batch: int, *, wide: int = 2, fields: int = 26, dense: int = 13
) -> tuple[Tensor, ...]:
    """Return the arguments of `WideDeep.forward`.

    Args:
        batch: Number of examples.
        wide: Number of fields of the wide part (default 2).
        fields: Number of fields of the deep part (default 26).
        dense: Number of dense features of an example (default 13).
    """
    return (_integers(batch, wide), _integers(batch, fields), torch.zeros(batch, dense))


def ratings(batch: int) -> tuple[Tensor, ...]:
    """Return the arguments of `NeuMF.forward`.

    Args:
        batch: Number of examples.
    """
    return (_integers(batch), _integers(batch))
