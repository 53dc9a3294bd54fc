"""Architectures have the parameters and the arithmetic of the published ones."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from slipstream.errors import UsageError
from slipstream.forecast.trace import trace
from slipstream.forecast.trace.architectures.efficient import SCALES, InvertedBlock
from slipstream.forecast.trace.architectures.names import TABLE, Architecture, find
from slipstream.forecast.work.resize import resizable
from slipstream.forecast.work.workload import TrainingPhase, Workload

TORCHVISION = "pytorch.org/vision, num_params and GFLOPS of the weights"
TIMM = "timm, results/results-imagenet.csv"
HUGGING = "transformers, num_parameters() of the module"
NVIDIA = "DeepLearningExamples, what its script prints"
FOUNDRY = "llm-foundry, scripts/train/benchmarking/README.md"
LLAMA = "huggingface.co, safetensors of the checkpoint"
SUM = "sum of the dimensions that the source gives"

PARAMETERS = [
    ("alexnet", 61_100_840, TORCHVISION),
    ("vgg11", 132_863_336, TORCHVISION),
    ("vgg16", 138_357_544, TORCHVISION),
    ("vgg19", 143_667_240, TORCHVISION),
    ("vgg19-22k", 229e6, "Zhang et al., 2017, Poseidon, table 3"),
    ("googlenet", 6_624_904, TORCHVISION),
    ("inception-v3", 23_834_568, TIMM),
    ("resnet18", 11_689_512, TORCHVISION),
    ("resnet34", 21_797_672, TORCHVISION),
    ("resnet50", 25_557_032, TORCHVISION),
    ("resnet50-v1", 25_557_032, TORCHVISION),
    ("resnet101", 44_549_160, TORCHVISION),
    ("resnet152", 60_192_808, TORCHVISION),
    ("resnet26d", 16.01e6, TIMM),
    ("resnext101-32x4d", 44_177_704, TIMM),
    ("se-resnext101-32x4d", 48_955_416, TIMM),
    ("mobilenet-v2", 3_504_872, TORCHVISION),
    ("mobilenet-v3-large", 5_483_032, TORCHVISION),
    ("efficientnet-b0", 5_288_548, TORCHVISION),
    ("efficientnet-b1", 7_794_184, TORCHVISION),
    ("efficientnet-b2", 9_109_994, TORCHVISION),
    ("efficientnet-b3", 12_233_232, TORCHVISION),
    ("efficientnet-b4", 19_341_616, TORCHVISION),
    ("efficientnet-b5", 30_389_784, TORCHVISION),
    ("efficientnet-b6", 43_040_704, TORCHVISION),
    ("efficientnet-b7", 66_347_960, TORCHVISION),
    ("vit-tiny-16", 5_717_416, TIMM),
    ("vit-small-16", 22_050_664, TIMM),
    ("vit-base-16", 86_567_656, TORCHVISION),
    ("vit-base-32", 88_224_232, TORCHVISION),
    ("vit-large-16", 304_326_632, TORCHVISION),
    ("vit-large-32", 306_535_400, TORCHVISION),
    ("bert-base-seq128", 110_106_428, HUGGING),
    ("bert-large-seq512", 336_226_108, HUGGING),
    ("bert-base-squad", 108_893_186, HUGGING),
    ("transformer-big", 210_874_368, SUM),
    ("transformer-xl-base", 191_950_298, SUM),
    ("transformer-xl-large", 285e6, "arXiv 1901.02860, with tables a quarter as wide by cluster"),
    ("ncf", 31_832_577, NVIDIA),
    ("gpt2", 124_439_808, HUGGING),
    ("gpt2-medium", 354_823_168, HUGGING),
    ("gpt2-large", 774_030_080, HUGGING),
    ("gpt2-xl", 1_557_611_200, HUGGING),
    ("gpt3-125m", 125e6, "arXiv 2005.14165, table D.1"),
    ("gpt3-350m", 356e6, "arXiv 2005.14165, table D.1"),
    ("gpt3-760m", 760e6, "arXiv 2005.14165, table D.1"),
    ("gpt3-1.3b", 1320e6, "arXiv 2005.14165, table D.1"),
    ("gpt3-2.7b", 2650e6, "arXiv 2005.14165, table D.1"),
    ("gpt3-6.7b", 6660e6, "arXiv 2005.14165, table D.1"),
    ("gpt3-13b", 12850e6, "arXiv 2005.14165, table D.1"),
    ("gpt3-175b", 174_600e6, "arXiv 2005.14165, table D.1"),
    ("llama2-7b", 6_738_415_616, LLAMA),
    ("llama2-13b", 13_015_864_320, LLAMA),
    ("llama2-70b", 68_976_648_192, LLAMA),
    ("llama3-8b", 8_030_261_248, LLAMA),
    ("llama3-70b", 70_553_706_496, LLAMA),
    ("llama3-405b", 405_853_388_800, LLAMA),
    ("mpt-125m", 125_311_488, FOUNDRY),
    ("mpt-350m", 355_985_408, FOUNDRY),
    ("mpt-760m", 760_470_528, FOUNDRY),
    ("mpt-1b", 1_315_950_592, FOUNDRY),
    ("mpt-3b", 2_651_837_440, FOUNDRY),
    ("mpt-7b", 6_658_859_008, FOUNDRY),
    ("mpt-13b", 12_853_954_560, FOUNDRY),
    ("mpt-30b", 29_975_214_080, FOUNDRY),
    ("mpt-70b", 64_862_437_376, FOUNDRY),
]

# Multiply-add operations of the forward pass of one sample.
FLOPS = [
    ("alexnet", 0.714e9, TORCHVISION),
    ("vgg16", 15.47e9, TORCHVISION),
    ("googlenet", 1.498e9, TORCHVISION),
    ("inception-v3", 5.713e9, TORCHVISION),
    ("resnet18", 1.814e9, TORCHVISION),
    ("resnet50", 4.089e9, TORCHVISION),
    ("resnet50-v1", 3.86e9, "arXiv 1512.03385, table 1: 3.8e9"),
    ("resnext101-32x4d", 8.01e9, TIMM),
    ("mobilenet-v2", 0.300e9, "arXiv 1801.04381, table 4"),
    ("mobilenet-v3-large", 0.217e9, TORCHVISION),
    ("efficientnet-b0", 0.386e9, TORCHVISION),
    ("efficientnet-b4", 4.394e9, TORCHVISION),
    ("vit-base-16", 17.564e9, TORCHVISION),
    ("bert-base-seq128", 11.17e9 + 20 * 24.03e6, "arXiv 1909.10351: 22.5e9 / 2, and the heads"),
]


def parameters(architecture: Architecture, **changes: object) -> int:
    """Return the number of trained elements of a module, which takes no memory."""
    with torch.device("meta"):
        module = architecture.make(**changes)
    return sum(parameter.numel() for parameter in module.parameters())


def traced(name: str, batch: int = 1, **changes: object) -> Workload:
    """Return the workload of a batch."""
    architecture = find(name)
    return trace(
        lambda: architecture.make(**changes),
        lambda: architecture.inputs(batch),
        name=name,
        samples=batch,
    )


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "published", "source"), PARAMETERS, ids=[row[0] for row in PARAMETERS]
)
def test_parameters_are_as_published(name: str, published: float, source: str) -> None:
    # The published integers are exact, except that the products of Llama have biases here.
    exact = isinstance(published, int) and source is not LLAMA
    assert parameters(find(name)) == pytest.approx(published, rel=0 if exact else 5e-3), source


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "published", "source"), FLOPS, ids=[row[0] for row in FLOPS])
def test_forward_flops_are_as_published(name: str, published: float, source: str) -> None:
    # Two samples, because a batch norm of one vector has no variance.
    forward = traced(name, 2).flops(TrainingPhase.FORWARD)
    rel = 2e-3 if source is TORCHVISION else 1e-2
    assert forward / 2 / 2 == pytest.approx(published, rel=rel), source


@pytest.mark.parametrize(
    ("length", "published"), [(512, 124_131_840), (8192, 130_030_080), (32768, 148_904_448)]
)
def test_positions_of_mpt_follow_the_sequence(length: int, published: int) -> None:
    assert parameters(find("mpt-125m"), positions=length) == published


def test_faces_have_published_networks_and_a_centre_per_person() -> None:
    assert parameters(find("r100"), classes=0) == pytest.approx(65.15e6, rel=5e-3)
    assert parameters(find("y1"), classes=0) == pytest.approx(0.99e6, rel=2e-2)
    more = parameters(find("r100"), classes=1000) - parameters(find("r100"), classes=0)
    assert more == 1000 * 512


def test_partial_fc_multiplies_a_share_of_the_centres() -> None:
    whole = traced("y1", 2, classes=100_000).flops(TrainingPhase.FORWARD)
    tenth = traced("y1", 2, classes=100_000, sampled=0.1).flops(TrainingPhase.FORWARD)
    assert whole - tenth == 2 * 2 * 128 * 90_000


def test_ranks_compare_their_centres_to_all_faces_by_hand() -> None:
    found = traced("y1", 2, classes=80_000, ranks=8)
    scores = 2 * 8 * 10_000
    assert found.flops(TrainingPhase.FORWARD) == traced("y1", 2, classes=80_000).flops(
        TrainingPhase.FORWARD
    )
    # These are the scores, the inputs that two in-place functions save, shares, ones and six
    # temporaries.
    alive = [v for v in found.values if v.num_bytes == 4 * scores]
    most = max(sum(v.born <= i < v.dies for v in alive) for i in range(len(found.operators)))
    assert most == 11
    # Their gradient is one matrix of zeros that is filled; shares and ones have no gradient.
    large = {index for index, value in enumerate(found.values) if value.num_bytes == 4 * scores}
    backward = [each for each in found.operators if each.phase is TrainingPhase.BACKWARD]
    zeros = [each for each in backward if each.name == "zeros" and large & {*each.writes}]
    assert len(zeros) == 1


def test_wide_squeeze_has_more_parameters_and_hardly_more_flops() -> None:
    plain, wide = traced("efficientnet-b0", 2), traced("efficientnet-widese-b0", 2)
    assert wide.num_parameters > 1.4 * plain.num_parameters
    ratio = wide.flops(TrainingPhase.FORWARD) / plain.flops(TrainingPhase.FORWARD)
    assert 1.0 < ratio < 1.02


def test_ssd_reads_8732_boxes() -> None:
    architecture = find("SSD300")
    with torch.device("meta"):
        places, scores = architecture.make()(*architecture.inputs(2))
    assert places.shape == (2, 4, 8732)
    assert scores.shape == (2, 81, 8732)


def test_tables_of_dlrm_take_the_published_memory() -> None:
    assert parameters(find("dlrm-small")) * 4 == pytest.approx(15.6 * 2**30, rel=1e-2)
    assert parameters(find("dlrm-large")) * 4 == pytest.approx(85 * 2**30, rel=1e-2)


def test_wide_deep_has_as_many_rows_and_layers_as_asked() -> None:
    few = parameters(find("wide-deep"), vocabulary=100, layers=2)
    assert few == 100 * 17 + (429 + 1) * 1024 + 1025 * 1024 + 1025


@pytest.mark.slow("architecture at length")
def test_more_tokens_are_more_sentences() -> None:
    translated = partial(traced, "transformer-big")
    with pytest.raises(UsageError, match="the batch has 2 tokens, but a sentence has 32"):
        translated(2)
    model = resizable(translated)
    assert model.at(64).flops(TrainingPhase.FORWARD) == translated(64).flops(TrainingPhase.FORWARD)
    assert model.at(640).flops(TrainingPhase.FORWARD) == 10 * model.at(64).flops(
        TrainingPhase.FORWARD
    )


@pytest.mark.slow("architecture at length")
def test_attention_of_transformer_xl_sees_its_memory() -> None:
    workload = traced("transformer-xl-base", 1)
    scores = [
        product
        for operator in workload.operators
        if operator.phase is TrainingPhase.FORWARD and operator.module.endswith("blocks.0")
        for product in operator.products
        if product.batch == 8
    ]
    assert [(p.m, p.n, p.k) for p in scores] == [
        (192, 384, 64),
        (192, 384, 64),
        (192, 64, 384),
    ]


@pytest.mark.parametrize(
    ("name", "fills"),
    [
        ("vit-tiny-16", {1.0}),
        ("gpt3-125m", {0.5}),
        ("mpt-125m", {0.5}),
    ],
)
def test_tokens_see_all_others_or_those_before_them(name: str, fills: set[float]) -> None:
    operators = traced(name, 64 if find(name).samples_are == "token" else 1).operators
    attention = [each for each in operators if "scaled_dot_product" in each.name]
    assert {product.fill for each in attention for product in each.products} == fills


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("resnet26d", {}),
        ("ssd300", {}),
        ("se-resnext101-32x4d", {}),
        ("face-r50", {"classes": 1000}),
        ("vit-tiny-32", {}),
        ("bert-base-squad", {}),
        ("transformer-big", {}),
        ("dlrm-small", {}),
        ("wide-deep", {}),
        ("ncf", {}),
        ("gpt3-350m", {"layers": 2}),
        ("llama3-70b", {"layers": 2}),
        ("mpt-760m", {"layers": 2}),
    ],
)
def test_every_weight_gets_a_gradient(name: str, changes: dict[str, object]) -> None:
    batch = 64 if find(name).samples_are == "token" else 2
    workload = traced(name, batch, **changes)
    assert [p.name for p in workload.parameters if p.ready < 0] == []
    ratio = workload.flops(TrainingPhase.BACKWARD) / workload.flops(TrainingPhase.FORWARD)
    assert 1.5 < ratio < 2.6


@pytest.mark.parametrize("text", ["ResNet-50", "resnet_50", "RESNET 50", "resnet50-v1.5"])
def test_names_are_found_whatever_their_spelling(text: str) -> None:
    assert find(text).name == "resnet50"


def test_every_name_and_alias_leads_to_its_architecture() -> None:
    for architecture in TABLE.values():
        for name in (architecture.name, *architecture.aliases):
            assert find(name) is architecture


def test_native_sizes_of_efficientnet() -> None:
    for number, scale in enumerate(SCALES):
        with torch.device("meta"):
            (images,) = find(f"efficientnet-b{number}").inputs(1)
        assert images.shape == (1, 3, scale.side, scale.side)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"'resnet51'; the nearest are: .*resnet50"):
        find("resnet51")


def test_a_name_like_no_other_is_answered_with_all() -> None:
    with pytest.raises(UsageError, match=r"alexnet, .*, ncf$"):
        find("???")


@pytest.mark.parametrize(
    ("names", "share", "count"),
    [
        (("alexnet", "vgg16", "vgg19-22k"), 0.5, 2),
        (("googlenet", "mobilenet-v2", "mobilenet-v3-large"), 0.2, 1),
        (("inception-v3",), 0.5, 1),
        # arXiv 1905.11946, section 5.2: dropout rises linearly from 0.2 for B0 to 0.5 for B7.
        (("efficientnet-b0", "efficientnet-b1"), 0.2, 1),
        (("efficientnet-b2", "efficientnet-b3"), 0.3, 1),
        (("efficientnet-b4", "efficientnet-b5"), 0.4, 1),
        (("efficientnet-b6", "efficientnet-b7"), 0.5, 1),
        (("face-r50", "face-r100"), 0.4, 1),
        (("bert-base-seq128", "bert-base-squad"), 0.1, 25),
        (("gpt2",), 0.1, 24),
        (("gpt3-125m", "mpt-125m", "vit-base-16"), 0.0, 24),
        (("transformer-big",), 0.1, 31),
        (("transformer-xl-base",), 0.1, 33),
        (("transformer-xl-large",), 0.2, 37),
        (("wide-deep",), 0.5, 7),
        (("ncf",), 0.5, 3),
        (("resnet50", "ssd300", "face-y1", "dlrm-small"), 0.0, 0),
    ],
)
def test_dropout_is_as_published(names: tuple[str, ...], share: float, count: int) -> None:
    for name in names:
        with torch.device("meta"):
            module = find(name).make()
        found = [each.p for each in module.modules() if isinstance(each, torch.nn.Dropout)]
        assert found == [share] * count, name


def test_later_blocks_of_efficientnet_are_skipped_more_often() -> None:
    with torch.device("meta"):
        module = find("efficientnet-b0").make()
    drops = [each.drop for each in module.modules() if isinstance(each, InvertedBlock)]
    assert drops == pytest.approx([0.2 * place / 16 for place in range(16)])


@pytest.mark.parametrize(
    ("name", "changes", "shapes"),
    [
        ("resnet50", {}, [(3, 3, 224, 224)]),
        ("inception-v3", {}, [(3, 3, 299, 299)]),
        ("ssd300", {}, [(3, 3, 300, 300)]),
        ("face-y1", {}, [(3, 3, 112, 112), (3,)]),
        ("bert-base", {}, [(3, 128), (3, 128), (3, 20), (3, 20), (3,)]),
        ("bert-large-seq512", {}, [(3, 512), (3, 512), (3, 80), (3, 80), (3,)]),
        ("bert-base-squad", {}, [(3, 384), (3, 384), (3, 2)]),
        ("gpt2", {}, [(3, 1024)]),
        ("gpt3-125m", {}, [(3, 2048)]),
        ("llama2-7b", {}, [(3, 4096)]),
        ("llama3-8b", {"length": 9}, [(3, 9)]),
        ("transformer", {"length": 2}, [(1, 2), (1, 2)]),
        ("transformer-xl", {}, [(3, 192), (3, 192), (16, 3, 192, 512)]),
        ("dlrm-small", {}, [(3, 13), (3, 26)]),
        ("wdl", {}, [(3, 2), (3, 26), (3, 13)]),
        ("ncf", {}, [(3,), (3,)]),
    ],
)
def test_batches_have_the_shapes_of_published_trainings(
    name: str, changes: dict[str, int], shapes: list[tuple[int, ...]]
) -> None:
    found = find(name).inputs(3, **changes)
    assert [tuple(each.shape) for each in found] == shapes
    # Tokens and rows of tables are integers; pixels, numbers and memories are not.
    fractions = {(3, 13), *(shape for shape in shapes if len(shape) == 4)}
    assert [each.is_floating_point() for each in found] == [each in fractions for each in shapes]


def test_a_batch_counts_what_its_architecture_says() -> None:
    counted = {
        "image": ("alexnet", "vit-l/32", "r100"),
        "sequence": ("bert-large", "gpt2", "mpt-7b", "transformer-xl"),
        "token": ("transformer",),
        "example": ("dlrm-large", "wdl", "neumf"),
    }
    for what, names in counted.items():
        assert [find(name).samples_are for name in names] == [what] * len(names)
    # A batch has at least one sentence of 32 tokens, and a remainder is dropped.
    assert [len(find("transformer").inputs(tokens)[0]) for tokens in (32, 63, 64)] == [1, 1, 2]
