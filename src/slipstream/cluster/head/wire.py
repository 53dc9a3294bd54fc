"""The messages between the head and a host daemon: one JSON object per line, over TLS.

daemon  {"host": name, "slots": n}        once for each control connection
head    {"agent": number}                 start an agent, and open a connection for it
head    {"end": true}                     the job is over
daemon  {"failed": number, "reason": text}    the agent could not be started
daemon  {"taken_at": time}                the cloud takes the host away at this time
both    {"alive": true}                   every few seconds

daemon  {"agent": number}                 the first line of an agent's connection; from then on
                                          the connection carries what launcher and agent say
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

# Each side sends a sign of life this often, and gives the other up after SILENCE_SECONDS. A network
# that is away for a few seconds must not end ranks, which themselves survive it; chosen by hand.
ALIVE_SECONDS = 3.0
SILENCE_SECONDS = 15.0
MAX_LINE = 4096


def encode_line(**fields: object) -> bytes:
    """Return a message as one line."""
    return json.dumps(fields).encode() + b"\n"


async def read_line(reader: asyncio.StreamReader, seconds: float) -> dict[str, Any] | None:
    """Return the next message; None if the connection ended, or was silent for too long.

    Args:
        reader: Connection.
        seconds: Longest silence in seconds.
    """
    try:
        line = await asyncio.wait_for(reader.readline(), seconds)
        message: object = json.loads(line) if line.endswith(b"\n") else None
    except (OSError, ValueError, asyncio.TimeoutError, asyncio.LimitOverrunError):
        return None
    return cast("dict[str, Any]", message) if isinstance(message, dict) else None


async def send_alive(writer: asyncio.StreamWriter) -> None:
    """Send signs of life until the task is cancelled or the connection ends."""
    try:
        while True:
            await asyncio.sleep(ALIVE_SECONDS)
            writer.write(encode_line(alive=True))
            await writer.drain()
    except OSError:
        return


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until the reader ends or one of the connections breaks; then close the writer."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
