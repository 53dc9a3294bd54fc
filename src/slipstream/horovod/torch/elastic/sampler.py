"""A sampler that divides the samples that are left of an epoch anew whenever the ranks change."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sized
from typing import Any

import torch.utils.data

from slipstream.horovod.common.basics import rank, size


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Sampler that divides a data set among the ranks, and knows how far all ranks have come.

    The position is a number of samples of all ranks together. Pass the sampler to `TorchState`,
    call record_batch() after each batch, and set_epoch() at the end of each epoch. Then no sample
    of an epoch is left out when ranks come and go. If the samples that are left cannot be divided
    evenly, the first of them are repeated, so that all ranks have equally many.

    Args:
        dataset: Data set, whose length stays the same.
        shuffle: Whether the samples are in a random order, which differs from epoch to epoch
            (default True).
        seed: Seed of the random order, the same on all ranks (default 0).
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch from its first sample; call it at the end of the epoch before.

        Args:
            epoch: Number of the epoch, which chooses the random order.
        """
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Take note that every rank has processed a batch.

        Args:
            batch_idx: Number of the batch, which has no effect.
            batch_size: Number of samples of each rank.
        """
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch and the position within it."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go to a position that state_dict() has returned, on this or another rank."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divide the samples that are left among the present ranks."""
        self.num_replicas, self.rank = size(), rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        """Iterate over this rank's samples; the ranks take turns in the common order."""
        repeated = itertools.islice(itertools.cycle(self.remaining_indices), self.total_size)
        return itertools.islice(repeated, self.rank, None, self.num_replicas)

    def __len__(self) -> int:
        """Return the number of samples of this rank that are left."""
        return self.num_samples
