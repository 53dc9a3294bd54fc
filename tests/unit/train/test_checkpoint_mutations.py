"""Manifests that somebody has changed, with a checksum that fits: they are refused, or harmless."""

from __future__ import annotations

import contextlib
import json
import zlib
from pathlib import Path

import torch
from mutations import changed_json, sweep

from slipstream.errors import SlipstreamError
from slipstream.train.checkpoint import Checkpointer
from slipstream.train.checkpoint.manifest import MANIFEST, folder_of


def framed(text: bytes) -> bytes:
    """Return the content of a manifest's file, with the checksum of the text."""
    return b'{"crc32": "%08x", "manifest": %s}\n' % (zlib.crc32(text), text)


def test_a_changed_manifest_is_refused_or_restored(tmp_path: Path) -> None:
    checkpointer = Checkpointer(str(tmp_path))
    state = {"weight": torch.arange(12.0).reshape(3, 4), "step": 3, "names": ["a", "b"]}
    checkpointer.save(1, state)
    checkpointer.wait()
    path = tmp_path / folder_of(1) / MANIFEST
    text = json.dumps(json.loads(path.read_bytes())["manifest"]).encode()
    refused = 0
    for changed in sweep([text], changed_json, 1_500, seed=1):
        path.write_bytes(framed(changed))
        if checkpointer.newest() is None:
            refused += 1
            continue
        with contextlib.suppress(SlipstreamError):
            checkpointer.restore({"weight": torch.zeros(3, 4), "step": 0, "names": []})
    assert refused > 500
