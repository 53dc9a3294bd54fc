"""The processor is described as Linux describes it, and by its architecture elsewhere."""

import platform

import pytest

from slipstream import processor


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
