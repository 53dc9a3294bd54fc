"""Restores, saves a step, and dies during the save of the next one: `training.py URL [--look]`."""

import logging
import os
import signal
import sys

import torch

from slipstream.train.checkpoint import Checkpointer
from slipstream.train.checkpoint.object_storage import ONE_REQUEST_BYTES

ELEMENTS = 2 * ONE_REQUEST_BYTES // 4  # the file is uploaded in several parts


def state_of(step: int) -> dict:
    return {"weights": torch.full((ELEMENTS,), float(step)), "step": step}


def die_in_an_upload() -> None:
    """End this process when the second part of a file is to be sent."""
    import s3fs

    send_parts = s3fs.core.S3File._upload_chunk

    def upload(file, final: bool = False):
        if file.parts:
            os.kill(os.getpid(), signal.SIGKILL)
        return send_parts(file, final)

    s3fs.core.S3File._upload_chunk = upload


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    checkpointer = Checkpointer(sys.argv[1], keep=2)
    state = state_of(-1)
    step = checkpointer.restore(state) or 0
    assert (state["weights"] == (step or -1)).all()
    print("restored", step, flush=True)
    if "--look" in sys.argv:
        return
    checkpointer.save(step + 1, state_of(step + 1))
    checkpointer.wait()
    print("whole", step + 1, flush=True)
    die_in_an_upload()
    checkpointer.save(step + 2, state_of(step + 2))
    checkpointer.wait()


if __name__ == "__main__":
    main()
