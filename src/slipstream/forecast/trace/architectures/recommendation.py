"""Recommendation: DLRM, Wide & Deep and neural collaborative filtering.

The embeddings of this module have dense gradients, while NVIDIA and OneFlow train DLRM and Wide &
Deep with sparse gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from slipstream.forecast.trace.architectures.convolutions import relu

# Rows of the 26 tables of Criteo Terabyte in DeepLearningExamples. "Small" keeps categorical values
# that occur 15 times or more (16 GiB at a width of 128), "large" 3 times or more (85 GiB).
CRITEO_SMALL = (
    7912889, 33823, 17139, 7339, 20046, 4, 7105, 1382, 63, 5554114, 582469, 245828, 11, 2209, 10667,
    104, 4, 968, 15, 8165896, 2675940, 7156453, 302516, 12022, 97, 35,
)  # fmt: skip
CRITEO_LARGE = (
    45833188, 36747, 1572176, 345139, 11, 2209, 11268, 128, 4, 975, 15, 48937457, 17246, 11316796,
    40094537, 452104, 12607, 105, 36, 7414, 20244, 4, 7115, 1442, 63, 29275261,
)  # fmt: skip


class DLRM(nn.Module):
    """Deep learning recommendation model (Naumov et al., 2019, arXiv 1906.00091).

    Args:
        tables: Number of rows of each embedding table.
        width: Number of elements of an embedding, and of the last layer of the bottom network
            (default 128).
        dense: Number of dense features of an example (default 13).
        bottom: Widths of the layers that process the dense features.
        top: Widths of the layers that process the products of all pairs of embeddings.
    """

    def __init__(
        self,
        tables: Sequence[int] = CRITEO_SMALL,
        width: int = 128,
        dense: int = 13,
        bottom: Sequence[int] = (512, 256, 128),
        top: Sequence[int] = (1024, 1024, 512, 256, 1),
    ) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for rows in tables)
        self.bottom = _layers(dense, bottom)
        vectors = len(tables) + 1
        pairs = vectors * (vectors - 1) // 2
        # The width is padded to a multiple of 8, for tensor cores.
        self.padding = -(width + pairs) % 8
        self.top = _layers(width + pairs + self.padding, top)[:-1]

    def forward(self, dense: Tensor, categories: Tensor) -> Tensor:
        """Return scores (batch, 1).

        Args:
            dense: Dense features of the examples, (batch, features).
            categories: Index of the row that each example looks up in each table, int64 (batch,
                tables).
        """
        numbers = self.bottom(dense)
        columns = categories.unbind(1)
        embedded = [table(column) for table, column in zip(self.tables, columns, strict=True)]
        vectors = torch.stack([numbers, *embedded], dim=1)
        products = vectors @ vectors.transpose(1, 2)
        count = vectors.shape[1]
        row, column = torch.tril_indices(count, count, -1, device=dense.device).unbind(0)
        x = torch.cat([numbers, products[:, row, column]], dim=1)
        return self.top(functional.pad(x, (0, self.padding)))


class WideDeep(nn.Module):
    """Wide & Deep (Cheng et al., 2016, arXiv 1606.07792), trained on Criteo like in DLPerf.

    Args:
        vocabulary: Number of rows of the table that all deep fields share.
        wide_vocabulary: Number of rows of the wide table, which has width 1 (default 0:
            `vocabulary` rows).
        width: Number of elements of an embedding of the deep part.
        hidden: Width of a hidden layer.
        layers: Number of hidden layers.
        fields: Number of fields of the deep part; each looks up one embedding.
        dense: Number of dense features of an example (default 13).
        dropout: Dropout probability after each hidden layer (default 0.5).
    """

    def __init__(
        self,
        vocabulary: int = 2322444,
        *,
        wide_vocabulary: int = 0,
        width: int = 16,
        hidden: int = 1024,
        layers: int = 7,
        fields: int = 26,
        dense: int = 13,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.wide = nn.Embedding(wide_vocabulary or vocabulary, 1)
        self.table = nn.Embedding(vocabulary, width)
        self.deep = _layers(fields * width + dense, (hidden,) * layers, dropout)
        self.score = nn.Linear(hidden, 1)

    def forward(self, wide: Tensor, deep: Tensor, dense: Tensor) -> Tensor:
        """Return scores (batch, 1).

        Args:
            wide: Indices of rows of the wide table, int64 (batch, wide fields).
            deep: Indices of rows of the deep table, int64 (batch, deep fields).
            dense: Dense features of the examples, (batch, features).
        """
        x = torch.cat([self.table(deep).flatten(1), dense], dim=1)
        return self.score(self.deep(x)) + self.wide(wide).sum(1)


class NeuMF(nn.Module):
    """Neural collaborative filtering (He et al., 2017, arXiv 1708.05031) on MovieLens 20M.

    Args:
        users: Number of users.
        items: Number of items that users rate.
        factors: Length of the user embedding and of the item embedding that are multiplied
            element by element.
        layers: Widths of the layers, from the input to the last hidden layer.
        dropout: Dropout probability after each layer (default 0.5).
    """

    def __init__(
        self,
        users: int = 138493,
        items: int = 26744,
        factors: int = 64,
        layers: Sequence[int] = (256, 256, 128, 64),
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        half = layers[0] // 2
        self.user_factors, self.item_factors = (
            nn.Embedding(users, factors),
            nn.Embedding(items, factors),
        )
        self.users, self.items = nn.Embedding(users, half), nn.Embedding(items, half)
        self.mlp = _layers(layers[0], layers[1:], dropout)
        self.score = nn.Linear(factors + layers[-1], 1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Return scores (batch, 1).

        Args:
            users: Index of the user of each example, int64 (batch).
            items: Index of the item of each example, int64 (batch).
        """
        multiplied = self.user_factors(users) * self.item_factors(items)
        x = self.mlp(torch.cat([self.users(users), self.items(items)], dim=1))
        return self.score(torch.cat([multiplied, x], dim=1))


def _layers(inputs: int, widths: Sequence[int], dropout: float = 0.0) -> nn.Sequential:
    """Return linear layers with ReLU, each followed by dropout if the probability is above 0."""
    layers: list[nn.Module] = []
    for before, after in pairwise((inputs, *widths)):
        layers += [nn.Linear(before, after), relu()]
        if dropout:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)
