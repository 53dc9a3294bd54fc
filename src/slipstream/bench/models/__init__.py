"""Models for steps in which layers sleep, described by each layer's parameters and FLOPs."""

from collections.abc import Callable, Mapping

from slipstream.bench.models.attention import bert_base, gpt2, transformer
from slipstream.bench.models.convolutional import resnet50, resnet152, vgg16
from slipstream.bench.models.inception import inception_v3
from slipstream.bench.models.layers import ModelLayer as ModelLayer
from slipstream.bench.models.layers import Parameter as Parameter
from slipstream.bench.models.layers import ReplayModel as ReplayModel
from slipstream.bench.models.recommendation import wide_deep
from slipstream.errors import UsageError

MODELS: Mapping[str, Callable[[], ReplayModel]] = {
    "inception-v3": inception_v3,
    "resnet50": resnet50,
    "resnet152": resnet152,
    "vgg16": vgg16,
    "bert-base": bert_base,
    "transformer": transformer,
    "gpt2": gpt2,
    "wide-deep": wide_deep,
}


def model(name: str) -> ReplayModel:
    """Return the model that has the given name.

    Raises:
        UsageError: the name is unknown.
    """
    if name not in MODELS:
        raise UsageError(f"the model is {name!r}; allowed: {', '.join(MODELS)}")
    return MODELS[name]()
