"""Arguments of architectures, for a batch size; all zeros, since only shapes matter."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from slipstream.errors import UsageError
from slipstream.forecast.trace.architectures.transformer import TransformerSize

_integers = partial(torch.zeros, dtype=torch.int64)


def images(batch: int, *, side: int) -> tuple[Tensor, ...]:
    """Returns images (batch, 3, side, side).

    Args:
        batch: images.
        side: pixels.
    """
    return (torch.zeros(batch, 3, side, side),)


def faces(batch: int) -> tuple[Tensor, ...]:
    """Returns images (batch, 3, 112, 112) and their people (batch).

    Args:
        batch: images.
    """
    return (*images(batch, side=112), _integers(batch))


def tokens(batch: int, *, length: int) -> tuple[Tensor, ...]:
    """Returns tokens (batch, length).

    Args:
        batch: sequences.
        length: tokens of each.
    """
    return (_integers(batch, length),)


def masked(batch: int, *, length: int, predictions: int) -> tuple[Tensor, ...]:
    """Returns what `BertPretraining` takes.

    Args:
        batch: sequences.
        length: tokens of each.
        predictions: masked tokens of each.
    """
    sequences, guesses = (batch, length), (batch, predictions)
    shapes = (sequences, sequences, guesses, guesses, (batch,))
    return tuple(_integers(shape) for shape in shapes)


def questions(batch: int, *, length: int) -> tuple[Tensor, ...]:
    """Returns what `BertAnswers` takes.

    Args:
        batch: sequences.
        length: tokens of each.
    """
    return tuple(_integers(shape) for shape in ((batch, length), (batch, length), (batch, 2)))


def translations(batch: int, *, length: int = 32) -> tuple[Tensor, ...]:
    """Returns sentences of two languages (batch / length, length).

    Args:
        batch: tokens of each language.
        length: tokens of a sentence.

    Raises:
        UsageError: there are fewer tokens than a sentence has.
    """
    if batch < length:
        raise UsageError(f"{batch} tokens are less than a sentence of {length}: allow more")
    shape = (batch // length, length)
    return (_integers(shape), _integers(shape))


def remembered(batch: int, *, size: TransformerSize) -> tuple[Tensor, ...]:
    """Returns what `TransformerXL` takes.

    Args:
        batch: sequences.
        size: of the model.
    """
    shape = (batch, size.positions)
    memory = torch.zeros(size.layers, *shape, size.hidden)
    return (_integers(shape), _integers(shape), memory)


def clicks(batch: int, *, fields: int, dense: int = 13) -> tuple[Tensor, ...]:
    """Returns what `DLRM` takes.

    Args:
        batch: examples.
        fields: tables.
        dense: numbers of an example.
    """
    return (torch.zeros(batch, dense), _integers(batch, fields))


def wide_clicks(
    batch: int, *, wide: int = 2, fields: int = 26, dense: int = 13
) -> tuple[Tensor, ...]:
    """Returns what `WideDeep` takes.

    Args:
        batch: examples.
        wide: fields of the wide part.
        fields: of the deep part.
        dense: numbers of an example.
    """
    return (_integers(batch, wide), _integers(batch, fields), torch.zeros(batch, dense))


def ratings(batch: int) -> tuple[Tensor, ...]:
    """Returns what `NeuMF` takes.

    Args:
        batch: examples.
    """
    return (_integers(batch), _integers(batch))
