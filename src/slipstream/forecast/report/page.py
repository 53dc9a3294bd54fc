"""A page of sections with tables and charts: one file of HTML that loads nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined

# As in the addresses of Altair's schemas: "v6.4.1".
_VERSION = re.compile(r"v(\d+\.\d+)")


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a table.

    Args:
        text: of its first line.
        note: below it, such as an interval.
    """

    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """Of a table.

    Args:
        name: at its head.
        numeric: its cells are numbers, and stand at the right.
    """

    name: str
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows; the first cell of each says what the row is about.

    Args:
        caption: what it shows.
        columns: from left to right.
        rows: with a cell for each column.
        folded: it is shown when the reader opens it.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart.

    Args:
        name: unique in the page, of letters and dashes.
        caption: what it shows, for those who see it and those who do not.
        spec: of Vega-Lite.
    """

    name: str
    caption: str
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Part of a page.

    Args:
        name: unique in the page, of letters and dashes.
        title: of it.
        notes: paragraphs.
        figures: charts.
        tables: below them.
    """

    name: str
    title: str
    notes: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = field(default=())


def page(title: str, summary: str, sections: Sequence[Section]) -> str:
    """Returns a page as HTML. Blocks for a second where Vega is bundled.

    Args:
        title: of the page.
        summary: what it says, in a sentence or two.
        sections: in their order.
    """
    templates = Environment(
        loader=PackageLoader("slipstream.forecast.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    specs = [figure.spec for section in sections for figure in section.figures]
    return templates.get_template("page.html").render(
        title=title,
        summary=summary,
        sections=sections,
        vega=_vega(specs[0]["$schema"]) if specs else "",
    )


def _vega(schema: str) -> str:
    """The scripts that draw charts of a schema."""
    found = _VERSION.search(schema)
    assert found is not None, schema
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", found[1])
    return bundle.replace("</script", "<\\/script")
