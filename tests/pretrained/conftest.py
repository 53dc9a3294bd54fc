"""Where `make test` puts the packages with weights: beside the environment, not into it."""

from __future__ import annotations

import sys
from pathlib import Path

# They are pinned to old versions of packages that are here; none of them is imported.
sys.path.append(str(Path(sys.prefix, "pretrained")))
