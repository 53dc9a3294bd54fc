"""The results as text: JSON with a row a line."""

from __future__ import annotations

import json
from typing import Any


def case_text(case: dict[str, Any]) -> str:
    """Return one case of a part."""
    head = {key: value for key, value in case.items() if key != "rows"}
    rows = ",\n".join(f"   {json.dumps(row)}" for row in case.get("rows", []))
    return f'  {json.dumps(head)[:-1]}, "rows": [\n{rows}\n  ]}}'


def text_of(results: dict[str, list[dict[str, Any]]]) -> str:
    """Return all parts."""
    parts = [
        f" {json.dumps(name)}: [\n" + ",\n".join(map(case_text, cases)) + "\n ]"
        for name, cases in results.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"
