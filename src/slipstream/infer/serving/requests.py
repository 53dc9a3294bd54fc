"""What REST and gRPC do alike with a request: inputs are checked, and its lane is asked."""

from __future__ import annotations

import asyncio
import math

from slipstream.infer.serving.lane import Done
from slipstream.infer.serving.messages import Call
from slipstream.infer.serving.repository import Served


async def answer(served: Served, call: Call, begin: float, seconds: float) -> Done:
    """Returns what a model makes of a request.

    Args:
        served: the model.
        call: the request.
        begin: of the request, as `time.monotonic` counts.
        seconds: that it may take, if it does not say less.

    Raises RefusedError if it is not as the model needs it, or cannot be done in time.
    """
    until = begin + min(call.seconds or math.inf, seconds)
    if any(isinstance(each, list) for each in call.given.values()):
        # Files are decoded, which takes as long as a small model.
        loop = asyncio.get_running_loop()
        taken = await loop.run_in_executor(None, served.signature.take, call.given)
    else:
        taken = served.signature.take(call.given)
    return await served.lane.ask(taken, until)
