"""The names and sizes of codecs and algorithms are the same wherever they are offered."""

from __future__ import annotations

from typing import get_args

import pytest

from slipstream import _core as core
from slipstream.cli.forecast.options import CodecChoice
from slipstream.codecs import CODECS, LOSSY, wire_bytes, wire_share
from slipstream.settings.variables import AlgorithmName


def test_the_sizes_are_those_of_the_engine() -> None:
    assert wire_bytes("int8") == 1 + 4 / 128
    assert wire_share("fp16") == pytest.approx((2 + 4 / 2048) / 4)
    assert (wire_share("none"), wire_share("bf16")) == (1.0, 0.5)


def test_all_codecs_can_be_chosen_for_a_forecast() -> None:
    assert {choice.value for choice in CodecChoice} == {*CODECS, "any"}


def test_all_lossy_codecs_are_compressions_of_horovod() -> None:
    compression = pytest.importorskip("slipstream.horovod.torch.compression").Compression
    assert {getattr(compression, name).codec for name in LOSSY} == set(LOSSY)


def test_all_algorithms_of_the_engine_can_be_forced_by_the_setting() -> None:
    names = {name.upper() for name in get_args(AlgorithmName)}
    assert names == set(core.Algorithm.__members__) - {"ENCODED"}  # chosen with a codec only
