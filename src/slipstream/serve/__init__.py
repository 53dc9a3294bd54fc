"""Compiled models behind an endpoint: the Open Inference Protocol over REST and gRPC.

    from slipstream import serve

    serve.run("model.slip", port=9000)

A request takes this way: its bytes -> messages (REST) or grpc_service -> Signature.take -> Lane ->
Replica. Needs what `pip install 'slipstream[serve]'` brings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstream import lazy

if TYPE_CHECKING:
    from slipstream.serve.server import run as run

__all__ = ["run"]

__getattr__ = lazy.attributes("slipstream.serve", "serve", {"run": "slipstream.serve.server:run"})
