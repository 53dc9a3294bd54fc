"""The steps that REST and gRPC share: a request is checked, executed, counted and logged."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from slipstream.serve.batcher import InferenceResult
from slipstream.serve.protocol.messages import InferenceCall
from slipstream.serve.record import TRACE, Log, RequestRecord
from slipstream.serve.refusals import Reason, RequestRefusedError
from slipstream.serve.repository import Repository, ServedModel

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class ActiveRequest:
    """A request that is being answered.

    Args:
        served: Model to which the request is addressed.
        record: Record of the request, to which the steps add what they know.
        begin: Time of `time.monotonic` at which the request arrived.
        seconds: Time limit of the server in seconds; the request itself may set a shorter limit.
    """

    served: ServedModel
    record: RequestRecord
    begin: float
    seconds: float

    def check_admission(self, seconds: float | None) -> None:
        """Refuse the request before its body is read if not even one row could be finished in time.

        Args:
            seconds: Time limit of the request in seconds; None for the time limit of the server.

        Raises RequestRefusedError if the request cannot be finished in time.
        """
        self.served.batcher.check_admission(1, self._deadline(seconds))

    async def answer(self, call: InferenceCall) -> InferenceResult:
        """Return the model's result for the request.

        Args:
            call: Inputs and options of the request.

        Raises RequestRefusedError if the inputs do not fit the model, or if the result cannot be
        ready in time.
        """
        self.record.id = call.id[:128]
        check = self.served.signature.check
        if any(isinstance(value, list) for value in call.given.values()):
            # This decodes image files, which takes as long as a run of a small model, so it runs in
            # another thread.
            inputs = await asyncio.get_running_loop().run_in_executor(None, check, call.given)
        else:
            inputs = check(call.given)
        self.record.rows = inputs.rows
        self.record.done = await self.served.submit(inputs, self._deadline(call.seconds))
        return self.record.done

    def _deadline(self, seconds: float | None) -> float:
        return self.begin + min(seconds or math.inf, self.seconds)


class RequestHandler:
    """The handler of requests, whether they arrive over REST or gRPC.

    Args:
        repository: Repository of the models.
        seconds: Time limit of a request in seconds; the request itself may set a shorter limit.
        logs: Functions that receive the record of each answered request.
    """

    def __init__(self, repository: Repository, seconds: float, logs: Sequence[Log]) -> None:
        self.repository, self._seconds, self._logs = repository, seconds, logs

    @contextmanager
    def request(
        self, protocol: str, model: str, version: str, fields: Mapping[str, str]
    ) -> Generator[ActiveRequest]:
        """Open a request, and record its outcome when the context ends.

        Args:
            protocol: Protocol of the request, "rest" or "grpc".
            model: Name of the model.
            version: Version of the model; "" means any.
            fields: Fields of the request's header.

        Raises RequestRefusedError, with a reason, for every error inside the context.
        """
        begin = time.monotonic()
        trace = {name: fields[name][:512] for name in TRACE if _is_plain(fields.get(name, ""))}
        record = RequestRecord(protocol=protocol, trace=trace)
        try:
            with self.repository.find(model, version).used() as served:
                record.model, record.version = served.spec.name, served.spec.version
                yield ActiveRequest(served, record, begin, self._seconds)
        except RequestRefusedError as error:
            record.outcome, record.error = error.reason.name.lower(), str(error)
            raise
        except asyncio.CancelledError:
            record.outcome = Reason.GONE.name.lower()
            raise
        except Exception as error:
            # The error comes from an engine, so the client is told that the server is at fault.
            _LOG.exception("%s, version %s, failed", record.model, record.version)
            record.outcome, record.error = Reason.FAILED.name.lower(), repr(error)
            raise RequestRefusedError(
                Reason.FAILED, f"the model {model!r} failed; see the log"
            ) from error
        finally:
            record.seconds = time.monotonic() - begin
            for log in self._logs:
                log(record)


def _is_plain(text: str) -> bool:
    """Return whether a text can be returned unchanged in a header field."""
    return bool(text) and text.isascii() and text.isprintable()
