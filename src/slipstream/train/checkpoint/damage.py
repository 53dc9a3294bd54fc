"""The error of checkpoints that cannot be written or read."""

from __future__ import annotations

from slipstream.errors import SlipstreamError


class CheckpointError(SlipstreamError):
    """Restore another checkpoint, or mend the storage: files are missing, damaged or unwritable."""
