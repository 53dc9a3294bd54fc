"""Compiled models behind an endpoint: the Open Inference Protocol over REST and gRPC.

    from slipstream import serve

    serve.run("model.slip", port=9000)

A request passes through `protocol/messages` (REST) or `grpc_service` (gRPC), `Signature.check`, the
`Batcher` and a replica. The package needs `pip install 'slipstream[serve]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstream import lazy

if TYPE_CHECKING:
    from slipstream.serve.server import run as run

__all__ = ["run"]

__getattr__ = lazy.attributes("slipstream.serve", "serve", {"run": "slipstream.serve.server:run"})
