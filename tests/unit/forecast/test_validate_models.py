"""Architectures that rows name, and the numbers that shape them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from slipstream.forecast.validate.models import TrainedModel, model
from slipstream.forecast.validate.row import TableRow, UnreadableError

RowOf = Callable[..., TableRow]


def _model(row_of: RowOf, text: str, runtime: str = "pytorch", **columns: str) -> TrainedModel:
    return model(row_of(model=text, **columns), runtime)


@pytest.mark.parametrize(
    ("text", "name", "length", "assumed"),
    [
        ("GPT2 small", "gpt2", 1024, ("length",)),
        ("GPT2-medium sequence length 512", "gpt2-medium", 512, ()),
        ("GPT3-125M", "gpt3-125m", 2048, ("length",)),
        ("GPT3-6.7B seq=1024", "gpt3-6.7b", 1024, ()),
        ("MPT-1b", "mpt-1b", 2048, ("length",)),
        ("MPT 30b seq_len=8192", "mpt-30b", 8192, ()),
        ("Llama 7B", "llama2-7b", 4096, ("length",)),
        ("Llama-13b", "llama2-13b", 4096, ("length",)),
        ("Llama 8B", "llama3-8b", 8192, ("length",)),
        ("Llama-70B", "llama3-70b", 8192, ("length",)),
        ("Llama2-70B", "llama2-70b", 4096, ("length",)),
        ("Llama 3.1 405B seq 4096", "llama3-405b", 4096, ()),
    ],
)
def test_language_models_have_the_sequences_of_their_family(
    row_of: RowOf, text: str, name: str, length: int, assumed: tuple[str, ...]
):
    found = _model(row_of, text)
    assert (found.architecture, found.tokens, found.assumed) == (name, length, assumed)
    assert (found.sizes, found.inputs) == ({"positions": length}, {"length": length})
    assert found.samples_are == "sequence"


def test_a_gpt_of_any_size_has_the_vocabulary_of_megatron(row_of: RowOf):
    found = _model(row_of, "GPT hidden=64 a=2 layers=3")
    assert found.sizes == {
        "hidden": 64, "heads": 2, "layers": 3, "positions": 1024, "vocabulary": 51200,
    }  # fmt: skip
    assert found.assumed == ("length", "vocabulary")
    stated = _model(row_of, "GPT h=64 heads=2 L=3 seq=32 vocab=100")
    assert (stated.sizes["vocabulary"], stated.assumed) == (100, ())


@pytest.mark.parametrize(
    ("text", "name", "inputs", "assumed"),
    [
        ("BERT-Base", "bert-base", {"length": 128, "predictions": 20}, ("length",)),
        ("BERT-Large seq512", "bert-large", {"length": 512, "predictions": 80}, ()),
        ("BERT Large seq 384", "bert-large", {"length": 384, "predictions": 58}, ()),
        ("BERT-Base SQuAD", "bert-base-squad", {"length": 384}, ()),
        ("BERT-Large SQuAD seq=256", "bert-large-squad", {"length": 256}, ()),
    ],
)
def test_bert_predicts_a_share_of_its_tokens(
    row_of: RowOf, text: str, name: str, inputs: Mapping[str, int], assumed: tuple[str, ...]
):
    found = _model(row_of, text)
    assert (found.architecture, found.inputs, found.assumed) == (name, inputs, assumed)
    assert found.tokens == inputs["length"]


@pytest.mark.parametrize(
    ("text", "batch", "size", "tokens"),
    [
        ("Transformer-XL base", "8", "base", 192),
        ("Transformer-XL large", "64", "large", 384),
        ("Transformer-XL", "8", "large", 384),
        ("Transformer-XL", "9", "base", 192),
        ("Transformer-XL", "n/a", "base", 192),
    ],
)
def test_a_small_batch_is_of_the_large_transformer_xl(
    row_of: RowOf, text: str, batch: str, size: str, tokens: int
):
    found = _model(row_of, text, batch_per_gpu=batch)
    assert (found.architecture, found.tokens) == (f"transformer-xl-{size}", tokens)
    assert found.assumed == (() if size in text else ("size",))


@pytest.mark.parametrize(
    ("text", "framework", "sharded"),
    [
        ("DLRM small", "PyTorch", "none"),
        ("DLRM large hybrid-parallel", "PyTorch", "embedding"),
        ("Wide&Deep vocab=9", "HugeCTR", "embedding"),
        ("Wide and Deep vocab=9", "OneFlow (model-parallel embedding)", "embedding"),
        ("WDL vocab=9", "OneFlow", "none"),
    ],
)
def test_tables_of_embeddings_may_be_shared_out(
    row_of: RowOf, text: str, framework: str, sharded: str
):
    found = _model(row_of, text, framework=framework)
    assert (found.sharded, found.samples_are) == (sharded, "example")


@pytest.mark.parametrize(
    ("text", "framework", "sharded"),
    [
        ("VGG19-22K", "Poseidon-Caffe (WFBP+SFB)", "factors"),
        ("AlexNet", "Caffe SFB", "factors"),
        ("VGG19-22K", "Poseidon-Caffe (WFBP)", "none"),
    ],
)
def test_linear_layers_may_exchange_their_factors(
    row_of: RowOf, text: str, framework: str, sharded: str
):
    assert _model(row_of, text, framework=framework).sharded == sharded


def test_outbrain_has_tables_of_its_own(row_of: RowOf):
    found = _model(row_of, "Wide&Deep Outbrain")
    assert found.sizes == {
        "vocabulary": 672304, "width": 80, "layers": 5, "fields": 13, "dense": 13,
    }  # fmt: skip
    assert found.inputs == {"wide": 13, "fields": 13, "dense": 13}
    usual = _model(row_of, "Wide&Deep vocabulary=7 embedding=3 layers=2")
    assert usual.sizes == {"vocabulary": 7, "width": 3, "layers": 2}


@pytest.mark.parametrize(
    ("text", "framework", "name", "sizes", "sharded", "assumed"),
    [
        ("Face R50", "MXNet", "r50", {"classes": 85742}, "none", ("classes",)),
        ("Emore R100", "MXNet", "r100", {"classes": 85742}, "none", ()),
        ("iResNet100 10k-class", "MXNet", "r100", {"classes": 10000}, "none", ()),
        ("R50 1.5M class", "MXNet", "r50", {"classes": 1500000}, "none", ()),
        (
            "Glint360k Y1 PartialFC", "MXNet", "y1", {"classes": 360232, "sampled": 0.1}, "head",
            ("sampled",),
        ),
        (
            "Face R50 classes=500 Partial FC rate: 1.0", "MXNet", "r50",
            {"classes": 500, "sampled": 1.0}, "head", (),
        ),
        (
            "Emore Y1 Model Parallel", "PyTorch", "y1", {"classes": 85742, "ranks": 32}, "head",
            (),
        ),
    ],
)  # fmt: skip
def test_faces_have_classes_and_maybe_a_share_of_them(
    row_of: RowOf, text: str, framework: str, name: str, sizes: Mapping[str, float], sharded: str,
    assumed: tuple[str, ...],
):  # fmt: skip
    found = _model(row_of, text, framework=framework)
    assert (found.architecture, found.sizes) == (f"face-{name}", sizes)
    assert (found.sharded, found.assumed) == (sharded, assumed)


@pytest.mark.parametrize(
    ("runtime", "framework", "name"),
    [
        ("tensorflow1", "TF", "resnet50-v1"),
        ("horovod", "Horovod TF", "resnet50-v1"),
        ("caffe", "Caffe", "resnet50-v1"),
        ("tensorflow1", "tensorpack", "resnet50"),
        ("pytorch", "PyTorch", "resnet50"),
    ],
)
def test_the_version_of_a_resnet_follows_the_software(
    row_of: RowOf, runtime: str, framework: str, name: str
):
    found = _model(row_of, "ResNet-50", runtime, framework=framework)
    assert (found.architecture, found.assumed) == (name, ("version",))
    for text, stated in (("ResNet50 v1.5", "resnet50"), ("ResNet-50-v1", "resnet50-v1")):
        found = _model(row_of, text, runtime, framework=framework)
        assert (found.architecture, found.assumed) == (stated, ())


def test_all_classes_of_imagenet_are_21841(row_of: RowOf):
    assert _model(row_of, "ResNet-101 ImageNet-22K").sizes == {"num_classes": 21841}
    # The network of that name already has these classes.
    assert _model(row_of, "VGG19-22K ImageNet-22K").sizes == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("VGG16 / AlexNet", "one model per row can be read"),
        ("GPT h=8 L=2", "without heads; heads=N can be read"),
        ("GPT h=8 heads=0 L=2", "heads is '0'"),
        ("ResNet-51", "other architectures"),
    ],
)
def test_models_that_cannot_be_read_say_why(row_of: RowOf, text: str, says: str):
    with pytest.raises(UnreadableError, match=says):
        _model(row_of, text)
