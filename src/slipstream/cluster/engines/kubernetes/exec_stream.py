"""A command in a container: its output over a WebSocket (RFC 6455), as `kubectl exec` gets it.

Each message of the server begins with the number of a channel: the standard output, the standard
error, or the result of the command as JSON (the protocol v4.channel.k8s.io).
"""

from __future__ import annotations

import base64
import http.client
import json
import os
from collections.abc import Iterator, Mapping
from typing import IO

from slipstream.errors import ConfigError

SWITCHED = 101
HEADERS = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "v4.channel.k8s.io",
}
OUTPUT, ERROR, RESULT = 1, 2, 3
_CONTINUED, _CLOSE, _PING, _PONG = 0, 8, 9, 10
_FINAL, _MASKED = 0x80, 0x80
_MAX_ERROR_BYTES = 2048


def open_command(
    connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str]
) -> http.client.HTTPResponse:
    """Ask for a command; return the answer, whose status is SWITCHED if the command has begun.

    Args:
        connection: Connection to the API server.
        path: Path with the query, which has the command.
        headers: Headers, such as that with the token.
    """
    key = base64.b64encode(os.urandom(16)).decode()
    connection.request("GET", path, headers={**headers, **HEADERS, "Sec-WebSocket-Key": key})
    return connection.getresponse()


def command_output(
    connection: http.client.HTTPConnection, answer: http.client.HTTPResponse
) -> Iterator[bytes]:
    """Yield the standard output of a command.

    Args:
        connection: Connection on which the command has begun.
        answer: Answer of the server.

    Raises:
        OSError: the connection ends before the command does.
        ConfigError: the command has failed.
    """
    said = b""
    channel = 0
    while True:
        code, payload = _read_frame(answer.fp)
        if code == _PING:
            connection.sock.sendall(_frame(_PONG, payload))
        elif code == _CLOSE:
            raise ConnectionError("the server has closed the stream of a command")
        elif code != _PONG:
            if code != _CONTINUED:
                channel, payload = payload[0], payload[1:]
            if channel == OUTPUT and payload:
                yield payload
            elif channel == ERROR:
                said = (said + payload)[-_MAX_ERROR_BYTES:]
            elif channel == RESULT:
                _check_result(payload, said)
                connection.sock.sendall(_frame(_CLOSE, b""))
                return


def _check_result(result: bytes, said: bytes) -> None:
    status = json.loads(result)
    if status.get("status") != "Success":
        lines = said.decode(errors="replace").strip().splitlines()[-3:]
        raise ConfigError(
            f"a command in the pod has failed: {status.get('message', status)}: {'; '.join(lines)}"
        )


def _read_frame(stream: IO[bytes]) -> tuple[int, bytes]:
    """Return the code and the payload of the next frame; those of a server are not masked."""
    first, second = _read(stream, 2)
    size = second & ~_MASKED
    if size == 126:
        size = int.from_bytes(_read(stream, 2), "big")
    elif size == 127:
        size = int.from_bytes(_read(stream, 8), "big")
    return first & 0x0F, _read(stream, size)


def _read(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ConnectionError("the stream of a command has ended before the command")
    return data


def _frame(code: int, payload: bytes) -> bytes:
    """Return a frame of a client, which must be masked; control frames have at most 125 bytes."""
    mask = os.urandom(4)
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    return bytes([_FINAL | code, _MASKED | len(payload)]) + mask + masked
