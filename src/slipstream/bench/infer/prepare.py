"""Process that makes one file: python -m slipstream.bench.infer.prepare JOB.

JOB is JSON text from `InferJob.as_text`. Quantisation needs much memory, so each file is made in
its own process. Files for other engines are made as the documentation of these engines recommends,
with the default settings. For ONNX Runtime, `quantize_static` quantises activations and weights per
channel, in QDQ form, after `quant_pre_process`; `quantize_dynamic` quantises transformers. For
OpenVINO, `quantize` and `compress_weights` of NNCF are used.
"""

# The type stubs of these packages leave most types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.bench.infer.contenders import (
    EXPORTED,
    NETWORK,
    ORT_DYNAMIC,
    ORT_STATIC,
    OV_INT8,
    OV_WEIGHTS,
    PACKAGE_BEST,
    PACKAGE_FP32,
    TRANSFORMERS,
)
from slipstream.bench.infer.job import InferJob
from slipstream.bench.infer.models import find_model
from slipstream.bench.infer.samples import CALIBRATION, HELD_OUT, JUDGING, SampleSet, write_set
from slipstream.infer.engines.openvino import openvino_package

OPSET = 17
# signal-to-noise ratio in dB that only float32 reaches; bfloat16 has about half of it
FP32_DB = 70.0
# suffix of the file beside each made file, with the seconds that making it took
SECONDS = ".seconds"

Maker = Callable[[InferJob, Path], None]


def make_file(text: str, makers: Mapping[str, Maker]) -> None:
    """Make the file that a job names, and write the duration in seconds to a second file beside it.

    Args:
        text: Instructions as JSON text, from `InferJob.as_text`.
        makers: Functions that make a file each, by the name of the file.
    """
    job = InferJob.from_text(text)
    # exporters and quantisers warn about problems in their own code
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    target = Path(job.folder, job.file)
    begin = time.perf_counter()
    makers[job.file](job, target)
    target.with_name(job.file + SECONDS).write_text(f"{time.perf_counter() - begin}\n")


def _export(job: InferJob, target: Path) -> None:
    """Export the model from PyTorch, and write samples with the outputs of the model in float32."""
    import torch

    model = find_model(job.model)
    network, inputs = model.build(), model.inputs(0)
    torch.onnx.export(
        network,
        tuple(torch.from_numpy(array) for array in inputs.values()),
        target,
        input_names=list(inputs),
        output_names=list(model.outputs),
        opset_version=OPSET,
        dynamo=False,
    )
    torch.save(network, target.with_name(NETWORK))
    for samples in (JUDGING, HELD_OUT):
        write_set(target.parent, samples, model, network)


def _inputs(job: InferJob, *sets: SampleSet) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    model = find_model(job.model)
    return (dict(model.inputs(seed)) for samples in sets for seed in samples.seeds())


def _ort_static(job: InferJob, target: Path) -> None:
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class CalibrationReader(quantization.CalibrationDataReader):
        """Reader that returns the calibration samples one by one."""

        def __init__(self) -> None:
            self._samples = _inputs(job, CALIBRATION)

        def get_next(self) -> Any:  # returns None at the end, which the base class does not declare
            return next(self._samples, None)

    with tempfile.TemporaryDirectory() as folder:
        prepared = str(Path(folder, EXPORTED))
        quant_pre_process(str(target.with_name(EXPORTED)), prepared)
        quantization.quantize_static(
            prepared,
            str(target),
            CalibrationReader(),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )


def _ort_dynamic(job: InferJob, target: Path) -> None:
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder:
        prepared = str(Path(folder, EXPORTED))
        quant_pre_process(str(target.with_name(EXPORTED)), prepared)
        quantization.quantize_dynamic(
            prepared, str(target), weight_type=quantization.QuantType.QInt8, per_channel=True
        )


def _openvino_int8(job: InferJob, target: Path) -> None:
    import nncf

    openvino = openvino_package()
    kind: Any = nncf.ModelType.TRANSFORMER if job.model in TRANSFORMERS else None
    quantised = nncf.quantize(
        openvino.Core().read_model(target.with_name(EXPORTED)),
        nncf.Dataset(list(_inputs(job, CALIBRATION))),
        subset_size=CALIBRATION.count,
        preset=nncf.QuantizationPreset.MIXED,
        model_type=kind,
    )
    openvino.save_model(quantised, target, compress_to_fp16=False)


def _openvino_weights(job: InferJob, target: Path) -> None:
    import nncf

    openvino = openvino_package()
    model = openvino.Core().read_model(target.with_name(EXPORTED))
    openvino.save_model(nncf.compress_weights(model), target, compress_to_fp16=False)


def _ours_fp32(job: InferJob, target: Path) -> None:
    from slipstream import infer

    infer.compile(
        target.with_name(EXPORTED),
        target,
        infer.CompileOptions(snr_db=FP32_DB, seconds=job.seconds, threads=job.threads),
    )


def _ours_best(job: InferJob, target: Path) -> None:
    from slipstream import infer

    infer.compile(
        target.with_name(EXPORTED),
        target,
        infer.CompileOptions(
            data=_inputs(job, CALIBRATION, JUDGING),  # the compiler calibrates with the first half
            snr_db=job.snr_db,
            seconds=job.seconds,
            threads=job.threads,
        ),
    )


MAKERS: Mapping[str, Maker] = {
    EXPORTED: _export,
    ORT_STATIC: _ort_static,
    ORT_DYNAMIC: _ort_dynamic,
    OV_INT8: _openvino_int8,
    OV_WEIGHTS: _openvino_weights,
    PACKAGE_FP32: _ours_fp32,
    PACKAGE_BEST: _ours_best,
}

if __name__ == "__main__":
    make_file(sys.argv[1], MAKERS)
