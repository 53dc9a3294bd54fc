"""The benchmark's networks: their sizes, their activations, and what ONNX Runtime makes of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from slipstream.bench.zoo import ZOO, ZooModel

OPSET = 17

# parameters and multiply-accumulates of one forward pass
SIZES = {
    "resnet50": (25_557_032, 4_089_184_256),
    "resnet26d": (16_014_408, 2_581_897_216),
    "vit_small": (22_050_664, 4_598_882_304),
    "mobilenetv3_large": (5_483_032, 216_589_760),
    "efficientnet_b0": (5_288_548, 385_814_752),
    "bert_base": (109_482_240, 11_174_215_680),
    "detector": (8_261_693, 2_316_339_200),
    "stylegan": (19_258_322, 3_742_752_512),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """An entry of the zoo and its network."""

    model: ZooModel
    network: torch.nn.Module

    def inputs(self, seed: int) -> tuple[torch.Tensor, ...]:
        """Return the inputs of a seed as the network takes them."""
        return tuple(torch.from_numpy(array) for array in self.model.inputs(seed).values())

    def outputs(self, seed: int) -> list[NDArray[np.float32]]:
        """Return the outputs of the network for the inputs of a seed."""
        with torch.no_grad():
            outputs = self.network(*self.inputs(seed))
        return [x.numpy() for x in (outputs if isinstance(outputs, tuple) else (outputs,))]


@pytest.fixture(scope="module")
def built(request: pytest.FixtureRequest) -> Built:
    """Return each network in turn, built once."""
    model = ZOO[request.param]
    return Built(model=model, network=model.build())


def networks(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test on every network of the zoo; the small ones are the corners of the sweep."""
    names = sorted(ZOO, key=lambda name: SIZES[name][1])  # by operations
    ordered = [names[0], *names[2:], names[1]]
    each = pytest.mark.parametrize("built", ordered, indirect=True, scope="module")
    return pytest.mark.sweep(each(test))


@networks
def test_network_has_its_parameters_and_operations(built: Built) -> None:
    num_parameters, macs = SIZES[built.model.name]
    assert sum(parameter.numel() for parameter in built.network.parameters()) == num_parameters
    counter = FlopCounterMode(display=False)
    # The counter does not know the CPU's fused attention.
    with counter, sdpa_kernel(SDPBackend.MATH):
        built.outputs(0)
    assert counter.get_total_flops() == 2 * macs


@networks
def test_activations_stay_of_order_one_through_the_depth(built: Built) -> None:
    deviations: dict[str, float] = {}
    hooks = [
        module.register_forward_hook(
            lambda _module, _inputs, output, name=name: deviations.update({name: output.std()})
        )
        for name, module in built.network.named_modules()
        if not any(module.children())
    ]
    outputs = built.outputs(1)
    for hook in hooks:
        hook.remove()
    assert len(outputs) == len(built.model.outputs)
    assert all(np.isfinite(output).all() for output in outputs)
    assert all(1e-3 < output.std() < 1e3 for output in outputs)
    assert {name: std for name, std in deviations.items() if not 0.02 < std < 50} == {}


@networks
def test_output_depends_on_the_input(built: Built) -> None:
    for one, other in zip(built.outputs(2), built.outputs(3), strict=True):
        assert np.std(one - other) > 0.2 * np.std(one)


@networks
def test_onnx_runtime_computes_the_same(built: Built, tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the exporter without dynamo
        torch.onnx.export(
            built.network,
            built.inputs(4),
            path,
            input_names=list(built.model.inputs(4)),
            output_names=built.model.outputs,
            opset_version=OPSET,
            dynamo=False,
        )
    onnx.checker.check_model(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    path.unlink()
    answers = session.run(list(built.model.outputs), dict(built.model.inputs(5)))
    for answer, expected in zip(answers, built.outputs(5), strict=True):
        np.testing.assert_allclose(answer, expected, rtol=1e-3, atol=1e-3 * expected.std())


def test_building_repeats_itself_and_leaves_the_random_state() -> None:
    model = ZOO["mobilenetv3_large"]
    before = torch.get_rng_state()
    one, other = (model.build().state_dict() for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[name], other[name]) for name in one)
