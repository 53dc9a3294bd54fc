"""PyTorch's entry point. It runs at every `import torch`: it registers a name and imports nothing.

What the backend needs is imported when the first group is made.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slipstream.torch.process_group import SlipstreamProcessGroup

NAME = "slipstream"

_log = logging.getLogger(__name__)


def register() -> None:
    """Makes `init_process_group("slipstream")` known to PyTorch; may be called again.

    An exception here would make `import torch` fail, also for programs that do not use
    Slipstream, so a failure is logged and the backend stays unknown.
    """
    try:
        _register()
    except Exception as error:  # noqa: BLE001  the top of an entry point
        _log.warning("the backend %s could not be registered with PyTorch: %s", NAME, error)


def _register() -> None:
    from torch import distributed

    if not distributed.is_available() or hasattr(distributed.Backend, NAME.upper()):
        return
    distributed.Backend.register_backend(  # pyright: ignore[reportUnknownMemberType]
        NAME, _create_process_group, extended_api=True, devices=["cpu"]
    )


def _create_process_group(options: Any, backend_options: Any) -> SlipstreamProcessGroup:
    from slipstream.torch.process_group import create_process_group

    return create_process_group(options, backend_options)
