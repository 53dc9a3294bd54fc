"""Registry of all pretrained models, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slipstream.bench.pretrained.case import Pretrained
from slipstream.bench.pretrained.faces import FACES
from slipstream.bench.pretrained.file_types import FILE_TYPES
from slipstream.bench.pretrained.ocr import OCR
from slipstream.bench.pretrained.sentences import SENTENCES
from slipstream.bench.pretrained.voice import VOICE
from slipstream.errors import UsageError

PRETRAINED: Mapping[str, Pretrained] = {
    model.name: model for model in (*OCR, *FACES, *VOICE, FILE_TYPES, SENTENCES)
}


def chosen(names: Sequence[str]) -> list[Pretrained]:
    """Return the models with the given names; all models if no names are given.

    Raises:
        UsageError: a name is unknown.
    """
    unknown = [name for name in names if name not in PRETRAINED]
    if unknown:
        raise UsageError(
            f"no pretrained model is called {', '.join(unknown)}; allowed: {', '.join(PRETRAINED)}"
        )
    return [PRETRAINED[name] for name in names or PRETRAINED]
