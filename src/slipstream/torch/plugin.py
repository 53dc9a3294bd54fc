"""PyTorch's entry point. It runs at every `import torch`: it registers a name and imports nothing.

What the backend needs is imported when the first group is made.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from typing import TYPE_CHECKING, Any

from slipstream.torch.backend import BACKEND_NAME

if TYPE_CHECKING:
    from slipstream.torch.process_group import SlipstreamProcessGroup

_log = logging.getLogger(__name__)


def register() -> None:
    """Make `init_process_group("slipstream")` known to PyTorch; may be called again.

    An exception here would make `import torch` fail, also for programs that do not use
    Slipstream, so a failure is logged and the backend stays unknown.
    """
    try:
        _register()
    except Exception as error:  # noqa: BLE001  the top of an entry point
        _log.warning("the backend %s could not be registered with PyTorch: %s", BACKEND_NAME, error)


def _register() -> None:
    from torch import distributed

    if not distributed.is_available() or hasattr(distributed.Backend, BACKEND_NAME.upper()):
        return
    distributed.Backend.register_backend(  # pyright: ignore[reportUnknownMemberType]
        BACKEND_NAME, _create_process_group, extended_api=True, devices=["cpu"]
    )
    _extend_env_rendezvous()


def _create_process_group(options: Any, backend_options: Any) -> SlipstreamProcessGroup:
    from slipstream.torch.process_group import create_process_group

    return create_process_group(options, backend_options)


def _extend_env_rendezvous() -> None:
    """Let env:// learn from mpirun and srun what torchrun would have told.

    PyTorch has no public way to do that. Nothing happens before a script asks for env://, and
    nothing changes for one that has its RANK.
    """
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    of_torch = handlers["env"]

    @functools.wraps(of_torch)
    def env_rendezvous(*args: Any, **kwargs: Any) -> Any:
        if "RANK" not in os.environ:
            _set_torchruns_variables()
        return of_torch(*args, **kwargs)

    handlers["env"] = env_rendezvous


def _set_torchruns_variables() -> None:
    from slipstream.settings import detect_launcher

    launch = detect_launcher()
    if launch.source != "single":
        os.environ.update({**launch.as_environment(), **os.environ})
