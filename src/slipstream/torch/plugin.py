"""Entry point that PyTorch calls at every `import torch`; the call only registers a name.

The modules of the backend are imported when the first group is created.
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
    """Register the backend of `init_process_group("slipstream")` with PyTorch, at most once.

    An exception would make `import torch` fail, even for programs that do not use Slipstream. So a
    failure is only logged, and the backend stays unknown.
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
        BACKEND_NAME, _create_process_group, extended_api=True, devices=["cpu", "cuda"]
    )
    _extend_env_rendezvous()


def _create_process_group(options: Any, backend_options: Any) -> SlipstreamProcessGroup:
    from slipstream.torch.process_group import create_process_group

    return create_process_group(options, backend_options)


def _extend_env_rendezvous() -> None:
    """Make env:// read rank and address from mpirun's or srun's variables if torchrun's are unset.

    PyTorch has no public function by which env:// could be extended. The change has no effect
    before a script uses env://, or if RANK is set.
    """
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    original = handlers["env"]

    @functools.wraps(original)
    def env_rendezvous(*args: Any, **kwargs: Any) -> Any:
        if "RANK" not in os.environ:
            _set_torchrun_variables()
        return original(*args, **kwargs)

    handlers["env"] = env_rendezvous


def _set_torchrun_variables() -> None:
    from slipstream.settings import detect_launcher

    launch = detect_launcher()
    if launch.source != "single":
        os.environ.update({**launch.as_environment(), **os.environ})
