"""What REST and gRPC do alike with a request: it is checked, run, counted and logged."""

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
        served: the model that it is for.
        record: of it.
        begin: as `time.monotonic` counts.
        seconds: that it may take, if it does not say less.
    """

    served: ServedModel
    record: RequestRecord
    begin: float
    seconds: float

    async def answer(self, call: InferenceCall) -> InferenceResult:
        """Returns what the model makes of it.

        Args:
            call: what is asked.

        Raises RequestRefusedError if it is not as the model needs it, or cannot be done in time.
        """
        self.record.id = call.id[:128]
        until = self.begin + min(call.seconds or math.inf, self.seconds)
        take = self.served.signature.check
        if any(isinstance(each, list) for each in call.given.values()):
            # Files are decoded, which takes as long as a small model.
            taken = await asyncio.get_running_loop().run_in_executor(None, take, call.given)
        else:
            taken = take(call.given)
        self.record.rows = taken.rows
        self.record.done = await self.served.submit(taken, until)
        return self.record.done


class RequestHandler:
    """Where requests come in.

    Args:
        repository: with the models.
        seconds: that a request may take, if it does not say less.
        logs: told of each request once it is answered.
    """

    def __init__(self, repository: Repository, seconds: float, logs: Sequence[Log]) -> None:
        self.repository, self._seconds, self._logs = repository, seconds, logs

    @contextmanager
    def request(
        self, protocol: str, model: str, version: str, fields: Mapping[str, str]
    ) -> Generator[ActiveRequest]:
        """Begins a request, and ends it; what fails meanwhile is refused, with a reason.

        Args:
            protocol: "rest" or "grpc".
            model: that is asked.
            version: of it; "": any.
            fields: of the header.
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
            # Whatever an engine raises: the client learns that it was not its fault.
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
    """It can be given back in a header as it is."""
    return bool(text) and text.isascii() and text.isprintable()
