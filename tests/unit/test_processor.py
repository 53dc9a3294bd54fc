"""The processor is described as Linux describes it, and by its architecture elsewhere."""

import platform

import pytest

from slipstream import processor
from slipstream.infer.engines import modules


@pytest.mark.parametrize(
    ("text", "name", "flags"),
    [
        ("cpu\t: 0\nmodel name\t: A: 2 GHz\nflags\t\t: fma avx2\n", "A: 2 GHz", ("fma", "avx2")),
        ("Features\t: asimd sve\n", platform.machine(), ("asimd", "sve")),
        (None, platform.machine(), ()),
    ],
)  # fmt: skip
def test_name_and_flags_are_read(tmp_path, monkeypatch, text, name, flags):
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(processor, "_DESCRIPTION", path)
    assert processor.processor_name() == name
    assert processor.processor_flags() == flags


def test_gpus_are_counted_by_their_device_files(tmp_path, monkeypatch):
    monkeypatch.setattr(processor, "DEVICES", tmp_path)
    assert (processor.num_gpus(), modules.missing_gpu()) == (0, modules.NO_GPU)
    for name in ("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert (processor.num_gpus(), modules.missing_gpu()) == (2, None)
