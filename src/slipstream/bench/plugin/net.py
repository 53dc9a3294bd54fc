"""The NCCL plugin in Python: it is loaded and called in the same way as by NCCL."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from slipstream.errors import SlipstreamError

HANDLE_BYTES = 128
WARNING = 2  # NCCL's level

_POINTER = ctypes.c_void_p
_LOGGER = ctypes.CFUNCTYPE(
    None,
    ctypes.c_int,
    ctypes.c_ulong,
    ctypes.c_char_p,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_char_p,
)
# The functions of ncclNetPlugin_v9 that are used here: their places in the table and arguments.
_FUNCTIONS = {
    "init": (1, (_LOGGER,)),
    "listen": (4, (ctypes.c_int, _POINTER, _POINTER)),
    "connect": (5, (ctypes.c_int, _POINTER, _POINTER, _POINTER)),
    "accept": (6, (_POINTER, _POINTER, _POINTER)),
    "isend": (10, (_POINTER, _POINTER, ctypes.c_size_t, ctypes.c_int, _POINTER, _POINTER)),
    "irecv": (11, (_POINTER, ctypes.c_int, *(_POINTER,) * 5)),
    "test": (13, (_POINTER, _POINTER, _POINTER)),
    "close_send": (14, (_POINTER,)),
    "close_receive": (15, (_POINTER,)),
    "close_listen": (16, (_POINTER,)),
}


@_LOGGER
def _log(level: int, _parts: int, _file: bytes, _line: int, _format: bytes, text: bytes) -> None:
    """Print a warning; `text` is the message, the only argument of the plugin's format."""
    if level <= WARNING:
        print(text.decode(errors="replace"), file=sys.stderr)


class Net:
    """A loaded plugin, which reads its options from the environment when it is loaded.

    Args:
        library: Path of the plugin's file. Each loaded file reads the environment once. So a
            process that needs several sets of options loads copies of the file from other paths.

    Raises:
        SlipstreamError: an option is not allowed.
    """

    def __init__(self, library: Path) -> None:
        table = (_POINTER * 20).in_dll(ctypes.CDLL(str(library)), "ncclNetPlugin_v9")
        self._functions = {
            name: ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(table[place] or 0)
            for name, (place, arguments) in _FUNCTIONS.items()
        }
        self._call("init", _log)

    def listen(self) -> tuple[bytes, int]:
        """Start to listen; return a handle for the sender, and the address of the new comm."""
        handle, comm = ctypes.create_string_buffer(HANDLE_BYTES), _POINTER()
        self._call("listen", 0, handle, ctypes.byref(comm))
        return handle.raw, comm.value or 0

    def accept(self, listening: int) -> int:
        """Wait for the sender, and return the comm that receives from it."""
        comm = _POINTER()
        while not comm.value:
            self._call("accept", listening, ctypes.byref(comm), None)
        self._call("close_listen", listening)
        return comm.value

    def connect(self, handle: bytes) -> int:
        """Wait for the receiver, and return the comm that sends to it."""
        buffer, comm = ctypes.create_string_buffer(handle, HANDLE_BYTES), _POINTER()
        while not comm.value:
            self._call("connect", 0, buffer, ctypes.byref(comm), None)
        return comm.value

    def send(self, comm: int, address: int, size: int) -> int:
        """Start to send memory; return a request, or 0 if too many are open."""
        request = _POINTER()
        self._call("isend", comm, address, size, 0, None, ctypes.byref(request))
        return request.value or 0

    def receive(self, comm: int, address: int, size: int) -> int:
        """Start to receive into memory; return a request, or 0 if too many are open."""
        request, tag = _POINTER(), ctypes.c_int(0)
        place, room = _POINTER(address), ctypes.c_size_t(size)
        arguments = (ctypes.byref(each) for each in (place, room, tag))
        self._call("irecv", comm, 1, *arguments, None, ctypes.byref(request))
        return request.value or 0

    def is_done(self, request: int) -> bool:
        """Move data, and return whether a request is done; a finished request is freed."""
        done = ctypes.c_int(0)
        self._call("test", request, ctypes.byref(done), None)
        return bool(done.value)

    def close(self, comm: int, *, sends: bool) -> None:
        """Close a comm that is connected."""
        self._call("close_send" if sends else "close_receive", comm)

    def _call(self, name: str, *arguments: object) -> None:
        result = self._functions[name](*arguments)
        if result:
            raise SlipstreamError(f"the NCCL plugin's {name} has failed with result {result}")
