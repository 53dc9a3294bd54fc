"""Which devices a process may use, and which descriptions ranks compare."""

import pytest

torch = pytest.importorskip("torch")

from slipstream.horovod.common.exceptions import HorovodInternalError  # noqa: E402
from slipstream.horovod.request import Request, Residual  # noqa: E402
from slipstream.horovod.torch.arrays import TorchArrays  # noqa: E402
from slipstream.horovod.torch.devices import TorchDevices  # noqa: E402


def test_a_process_uses_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    # PyTorch without CUDA raises an error here.
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    devices = TorchDevices()
    for _ in range(2):
        devices.admit(torch.device("cuda", 1))
    for error in (ValueError, HorovodInternalError):
        with pytest.raises(error, match=r"a tensor on cuda:0, but .* were on cuda:1; allowed: one"):
            devices.admit(torch.device("cuda", 0))
    devices.expect(3)  # the GPU of earlier tensors counts
    devices.admit(torch.device("cuda", 1))


def test_tensors_of_the_cpu_are_left_alone() -> None:
    request = Request(kind="allreduce", name="a", array=torch.zeros(2))
    TorchDevices().prepare([request])
    assert (request.device, request.after, request.output) == ("cpu", None, None)


def test_ranks_compare_the_kind_of_device() -> None:
    descriptions = {
        Request(kind="allreduce", name="a", array=torch.zeros(2), device=device)
        .tensor(TorchArrays())
        .note
        for device in ("cpu", "cuda")
    }
    assert descriptions == {f"allreduce sum 1 1 lossless on {name}" for name in ("cpu", "cuda")}


def test_rounding_errors_are_kept_where_the_codec_runs() -> None:
    residual = Residual((2, 3))
    made: list[str] = []

    def zeros(dtype: str, shape: object) -> object:
        made.append(dtype)
        return shape

    assert residual.on("cuda", zeros) == residual.on("cuda", zeros) == (2, 3)
    assert made == ["float32"]
    residual.on("cpu", zeros)
    assert made == ["float32"] * 2
