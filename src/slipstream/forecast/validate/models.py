"""The model of a published measurement: its architecture, its sizes and its inputs.

Architectures have the names that `slipstream.forecast.trace.architectures.names.find` accepts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from slipstream.forecast.validate.networks import network
from slipstream.forecast.validate.row import TableRow, UnreadableError, whole

Sharded = Literal["none", "head", "embedding", "factors"]

# Megatron pads GPT-2's 50257 tokens so that each of eight tensor-parallel ranks has a multiple of
# 128.
_GPT_VOCABULARY = 51200
# Number of classes in each face data set on which DLPerf trains.
_FACES = {"emore": 85742, "glint360k": 360232}
# Share of classes that PartialFC's authors sample (arXiv 2010.05222).
_PARTIAL_FC = 0.1
# Number of classes of ImageNet-22K (image-net.org, release of fall 2011).
_IMAGENET_22K = 21841
# Number of masked tokens that BERT predicts, for the sequence lengths of its two phases; at other
# lengths it is a share of the tokens (google-research/bert, README, max_predictions_per_seq and
# masked_lm_prob).
_PREDICTIONS = {128: 20, 512: 80}
_MASKED = 0.15
# Number of tokens of a question together with its text (google-research/bert, README,
# max_seq_length for SQuAD).
_SQUAD_LENGTH = 384
# Number of tokens of a sequence that Transformer-XL predicts in DeepLearningExamples. If a row does
# not name the size, the batch decides: the large model fits at most eight sequences.
_XL_TOKENS = {"base": 192, "large": 384}
_XL_LARGE_BATCH = 8
# Outbrain in DeepLearningExamples: 13 tables with 672304 rows and 1043 columns in total, 13 dense
# numbers, and five layers. The wide part has all fields too.
_OUTBRAIN = {"vocabulary": 672304, "width": 80, "layers": 5, "fields": 13, "dense": 13}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModel:
    """The model whose training was measured.

    Args:
        architecture: Name of the architecture.
        sizes: Keyword arguments of `Architecture.make`, which makes the model.
        inputs: Keyword arguments of `Architecture.inputs`, which makes a batch.
        tokens: Number of tokens of a sample (default 1).
        samples_are: Kind of a sample: "image" (default), "sequence", "token" or "example".
        sharded: Division of the model's parameters among ranks: "none" (default: each rank has all
            parameters), "head" (ranks divide the classes of a face recogniser's last layer),
            "embedding" (ranks divide the rows of embedding tables), or "factors" (each rank has all
            parameters, and ranks exchange the two factors of each linear layer's gradient instead
            of the gradient).
        assumed: Names of the values that the row does not state and that were assumed.
    """

    architecture: str
    sizes: Mapping[str, float] = field(default_factory=dict[str, float])
    inputs: Mapping[str, int] = field(default_factory=dict[str, int])
    tokens: int = 1
    samples_are: Literal["image", "sequence", "token", "example"] = "image"
    sharded: Sharded = "none"
    assumed: tuple[str, ...] = ()


def model(row: TableRow, runtime: str) -> TrainedModel:
    """Return the model that a published measurement names.

    Args:
        row: Published measurement, as a row of text.
        runtime: Name of the framework's variant. With TensorFlow 1 and Caffe, a ResNet is version 1
            by default.

    Raises:
        UnreadableError: The row names no known architecture, or more than one.
    """
    text = re.sub(r"[\s_]+", "-", row.model.lower())
    _check_single(row.model)
    for pattern, build in _RULES:
        if match := re.search(pattern, text):
            return build(match, row)
    if named := network(text, row, runtime):
        return _convolutional(*named, row)
    raise UnreadableError(
        f"the model is {row.model!r}; GPT, MPT, Llama, BERT, ResNet, EfficientNet and other"
        " architectures of slipstream.forecast.trace.architectures.names can be read"
    )


def _check_single(text: str) -> None:
    """Raise an error if a row has several models, such as "BERT-Large / ResNet-50"."""
    parts = re.split(r"\s/\s", text.lower())
    named = [part for part in parts if re.search(r"bert|resnet|vgg|inception|gnmt|alexnet", part)]
    if len(named) > 1:
        raise UnreadableError(f"the model is {text!r}; one model per row can be read")


def _number(row: TableRow, name: str, *keys: str) -> int:
    numbers = row.numbers()
    for key in keys:
        if key in numbers:
            return whole(numbers[key], name)
    raise UnreadableError(f"the model is {row.model!r} without {name}; {keys[0]}=N can be read")


def _length(row: TableRow, default: int) -> tuple[int, tuple[str, ...]]:
    """Return the number of tokens of a sequence, and ("length",) if the number is a guess."""
    match = re.search(r"seq(?:uence)?(?:[-_ ]?len(?:gth)?)?[-_ =]*(\d+)", row.words)
    return (whole(match[1], "seq"), ()) if match else (default, ("length",))


def _gpt(_: re.Match[str], row: TableRow) -> TrainedModel:
    length, guessed = _length(row, 1024)
    stated = "vocab" in row.numbers()
    sizes = {
        "hidden": _number(row, "the width", "h", "hidden"),
        "heads": _number(row, "heads", "heads", "a"),
        "layers": _number(row, "layers", "l", "layers"),
        "positions": length,
        "vocabulary": _number(row, "vocabulary", "vocab") if stated else _GPT_VOCABULARY,
    }
    return TrainedModel(
        architecture="gpt2", sizes=sizes, inputs={"length": length}, tokens=length,
        samples_are="sequence", assumed=guessed + (() if stated else ("vocabulary",)),
    )  # fmt: skip


def _published(name: str, row: TableRow, default: int) -> TrainedModel:
    """Return a language model whose name determines all sizes except the sequence length."""
    length, guessed = _length(row, default)
    return TrainedModel(
        architecture=name, sizes={"positions": length}, inputs={"length": length}, tokens=length,
        samples_are="sequence", assumed=guessed,
    )  # fmt: skip


def _gpt_named(match: re.Match[str], row: TableRow) -> TrainedModel:
    return _published(match[0], row, 2048 if match[0].startswith("gpt3") else 1024)


def _mpt(match: re.Match[str], row: TableRow) -> TrainedModel:
    return _published(f"mpt-{match[1]}", row, 2048)


def _llama(match: re.Match[str], row: TableRow) -> TrainedModel:
    version = match[1] or ("2" if match[2] in ("7", "13") else "3")
    return _published(f"llama{version}-{match[2]}b", row, 4096 if version == "2" else 8192)


def _bert(match: re.Match[str], row: TableRow) -> TrainedModel:
    name = f"bert-{match[1]}"
    if "squad" in row.words:
        name, (length, _), guessed = f"{name}-squad", _length(row, _SQUAD_LENGTH), ()
        inputs = {"length": length}
    else:
        length, guessed = _length(row, 128)
        predictions = _PREDICTIONS.get(length, round(_MASKED * length))
        inputs = {"length": length, "predictions": predictions}
    return TrainedModel(
        architecture=name, inputs=inputs, tokens=length, samples_are="sequence", assumed=guessed
    )


def _transformer_xl(_: re.Match[str], row: TableRow) -> TrainedModel:
    size = next((size for size in _XL_TOKENS if size in row.words), None)
    assumed = () if size else ("size",)
    if size is None:
        digits = row.batch_per_gpu.strip()
        size = "large" if digits.isdecimal() and int(digits) <= _XL_LARGE_BATCH else "base"
    return TrainedModel(
        architecture=f"transformer-xl-{size}", tokens=_XL_TOKENS[size], samples_are="sequence",
        assumed=assumed,
    )  # fmt: skip


def _dlrm(match: re.Match[str], row: TableRow) -> TrainedModel:
    sharded = "embedding" if "hybrid-parallel" in row.words else "none"
    return TrainedModel(architecture=f"dlrm-{match[1]}", samples_are="example", sharded=sharded)


def _wide_deep(_: re.Match[str], row: TableRow) -> TrainedModel:
    if "outbrain" in row.words:
        inputs = {"wide": 13, "fields": 13, "dense": 13}
        return TrainedModel(
            architecture="wide-deep", sizes=_OUTBRAIN, inputs=inputs, samples_are="example"
        )
    numbers, sizes = row.numbers(), dict[str, float]()
    for keyword, keys in (
        ("vocabulary", ("vocab", "vocabulary")),
        ("width", ("emb", "embedding", "width")),
        ("layers", ("hidden", "layers")),
    ):
        if any(key in numbers for key in keys):
            sizes[keyword] = _number(row, keyword, *keys)
    sharded = "embedding" if re.search("model-parallel|hugectr", row.words) else "none"
    return TrainedModel(
        architecture="wide-deep", sizes=sizes, samples_are="example", sharded=sharded
    )


def _face(match: re.Match[str], row: TableRow) -> TrainedModel:
    """Return a face recogniser: a network and a softmax over people."""
    network = match["face"] or ("r100" if match["depth"] == "100" else "r50")
    classes, guessed = _classes(row)
    sizes: dict[str, float] = {"classes": classes}
    partial = re.search(r"partial.?fc", row.words)
    if share := re.search(r"(?:sampl\w*|ratio|rate|\br)\s*[=: ]\s*(0?\.\d+|1\.0)", row.words):
        sizes["sampled"] = float(share[1])
    elif partial:
        sizes["sampled"] = _PARTIAL_FC
        guessed += ("sampled",)
    is_sharded = partial or re.search("model.parallel|sharded", row.words)
    if is_sharded and "torch" in row.framework.lower():
        sizes["ranks"] = whole(row.num_gpus, "num_gpus")
    return TrainedModel(
        architecture=f"face-{network}", sizes=sizes, sharded="head" if is_sharded else "none",
        assumed=guessed,
    )  # fmt: skip


def _classes(row: TableRow) -> tuple[int, tuple[str, ...]]:
    if match := re.search(r"(\d+(?:\.\d+)?)\s*([mk])[- ]?class", row.words):
        return round(float(match[1]) * (1_000_000 if match[2] == "m" else 1000)), ()
    if match := re.search(r"classes\s*=\s*(\d+)", row.words):
        return whole(match[1], "classes"), ()
    named = next((count for name, count in _FACES.items() if name in row.words), None)
    return (named, ()) if named else (_FACES["emore"], ("classes",))


def _fixed(match: re.Match[str], _: TableRow) -> TrainedModel:
    if "transformer" in match[0]:
        return TrainedModel(architecture="transformer-big", samples_are="token")
    return TrainedModel(architecture="ncf", samples_are="example")


def _convolutional(name: str, assumed: tuple[str, ...], row: TableRow) -> TrainedModel:
    has_more = "imagenet-22k" in row.words and not name.endswith("22k")
    sizes: dict[str, float] = {"num_classes": _IMAGENET_22K} if has_more else {}
    # SFB is the sufficient factor broadcasting of Poseidon.
    sharded: Sharded = "factors" if re.search(r"\bsfb\b", row.words) else "none"
    return TrainedModel(architecture=name, sizes=sizes, sharded=sharded, assumed=assumed)


_Build = Callable[["re.Match[str]", TableRow], TrainedModel]
_RULES: tuple[tuple[str, _Build], ...] = (
    (r"^gpt-?(?=.*\bh(?:idden)?=)", _gpt),
    (r"\bgpt2(?:-(?:medium|large|xl))?\b", _gpt_named),
    (r"\bgpt3-(?:125m|350m|760m|1\.3b|2\.7b|6\.7b|13b|175b)\b", _gpt_named),
    (r"\bmpt-?(125m|350m|760m|1b|3b|7b|13b|30b|70b)\b", _mpt),
    (r"\bllama-?([23])?(?:\.[0-9])?-?(7|8|13|70|405)b\b", _llama),
    (r"\bbert-?(base|large)\b", _bert),
    (r"\btransformer-?xl\b", _transformer_xl),
    (r"\btransformer(?:-big)?\b|\bncf\b|\bneumf\b", _fixed),
    (r"\bdlrm\b(?!-?dcn).*\b(small|large)\b", _dlrm),
    (r"\bwide-?(?:&|and)-?deep\b|\bwdl\b", _wide_deep),
    (r"(?:emore|glint360k|face)\b.*\b(?P<face>r50|r100|y1)\b(?P<depth>)", _face),
    (r"(?P<face>)(?:resnet|iresnet|\br)-?(?P<depth>50|100)\b.*[mk]-class", _face),
)
