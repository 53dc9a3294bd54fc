"""The models that are replayed: as many parameters and FLOPs as the published ones have."""

from collections import Counter

import pytest

from slipstream.bench.models import MODELS, model
from slipstream.errors import UsageError


@pytest.mark.parametrize(
    ("name", "num_elements"),
    [
        ("inception-v3", 23_834_568),
        ("resnet50", 25_557_032),
        ("resnet152", 60_192_808),
        ("vgg16", 138_357_544),
        ("bert-base", 109_482_240),
        ("gpt2", 124_439_808),
        # 18,944,000 of the table; 6 x 3,150,336 and 6 x 4,199,936 of the layers.
        ("transformer", 63_045_632),
        # 3.2M x (16 + 1) of the tables; 429 x 1024, 6 x 1024 x 1024, 7 x 1024 and 1025.
        ("wide-deep", 61_138_945),
    ],
)
def test_a_model_has_its_number_of_parameters(name: str, num_elements: int) -> None:
    assert model(name).num_elements == num_elements


@pytest.mark.parametrize(
    ("name", "num_tensors"),
    [("resnet50", 161), ("resnet152", 467), ("vgg16", 32), ("bert-base", 199), ("gpt2", 148)],
)
def test_a_model_has_its_number_of_gradients(name: str, num_tensors: int) -> None:
    assert len(model(name).parameters) == num_tensors


@pytest.mark.parametrize(
    ("name", "billion_macs"),
    [("inception-v3", 5.7), ("resnet50", 4.1), ("resnet152", 11.5), ("vgg16", 15.5)],
)
def test_a_convolutional_network_has_the_published_flops(name: str, billion_macs: float) -> None:
    assert model(name).flops / 2e9 == pytest.approx(billion_macs, rel=0.01)


@pytest.mark.parametrize(("name", "tokens"), [("bert-base", 128), ("gpt2", 1024)])
def test_a_transformer_has_two_flops_per_weight_and_token_and_those_of_attention(
    name: str, tokens: int
) -> None:
    tables = {"bert-base": 23_837_184 - 1536, "gpt2": 1024 * 768}[name]
    matrices = model(name).num_elements - tables
    attention = 12 * 4 * tokens**2 * 768
    assert model(name).flops == pytest.approx(2 * matrices * tokens + attention, rel=0.01)


@pytest.mark.parametrize("name", MODELS)
def test_names_are_unique_and_shapes_are_positive(name: str) -> None:
    made = model(name)
    assert made.name == name
    layers = Counter(layer.name for layer in made.layers)
    parameters = Counter(parameter.name for parameter in made.parameters)
    assert max((layers + Counter()).values()) == 1
    assert max(parameters.values()) == 1
    assert all(size > 0 for parameter in made.parameters for size in parameter.shape)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_tied_belongs_to_an_earlier_layer(name: str) -> None:
    owned: set[str] = set()
    for layer in model(name).layers:
        assert owned.issuperset(layer.tied)
        owned.update(parameter.name for parameter in layer.parameters)


@pytest.mark.parametrize("name", ["gpt2", "transformer"])
def test_the_head_of_a_language_model_uses_the_words_of_the_embedding(name: str) -> None:
    made = model(name)
    assert made.layers[-1].tied == (made.layers[0].parameters[0].name,)
    assert not made.layers[-1].parameters


def test_a_step_of_bert_touches_no_more_rows_than_it_has_tokens_or_words() -> None:
    words = model("bert-base").layers[0].parameters[0]
    assert words.touched_elements(2) == 2 * 128 * 768
    assert words.touched_elements(10_000) == words.num_elements


def test_a_dense_gradient_is_touched_everywhere() -> None:
    weight = model("vgg16").layers[0].parameters[0]
    assert weight.touched_elements(1) == weight.num_elements


def test_a_model_that_does_not_exist_is_a_wrong_call() -> None:
    with pytest.raises(UsageError, match="'resnet51'; allowed: inception-v3, resnet50"):
        model("resnet51")
