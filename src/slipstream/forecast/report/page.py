"""A page of sections with tables and charts, as one self-contained HTML file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined

# Altair's schema addresses contain a version such as "v6.4.1".
_VERSION = re.compile(r"v(\d+\.\d+)")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table.

    Args:
        text: First line.
        note: Second line, such as an interval (default none).
    """

    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Args:
        name: Heading.
        numeric: Whether the cells are numbers, which are aligned right (default False).
    """

    name: str
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first cell of each row names the subject of the row.

    Args:
        caption: Text above the table.
        columns: Columns from left to right.
        rows: Rows with a cell for each column.
        folded: Whether the table is hidden until the reader opens it (default False).
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart.

    Args:
        name: Identifier of letters and dashes, unique in the page.
        caption: Text below the chart, which also describes the chart for blind readers.
        spec: Chart as a Vega-Lite specification.
    """

    name: str
    caption: str
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of a page.

    Args:
        name: Identifier of letters and dashes, unique in the page.
        title: Heading.
        notes: Paragraphs below the heading.
        figures: Charts below the notes.
        tables: Tables below the charts.
    """

    name: str
    title: str
    notes: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = field(default=())


def page(title: str, summary: str, sections: Sequence[Section]) -> str:
    """Return a page as HTML.

    If there are charts, the call blocks for about a second to bundle Vega.

    Args:
        title: Title of the page.
        summary: Main result in a sentence or two.
        sections: Sections in the order of the page.
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
    """Return the scripts that draw charts.

    Args:
        schema: Address of the charts' Vega-Lite schema, which contains the version.
    """
    version = _VERSION.search(schema)
    assert version is not None, schema
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", version[1])
    return bundle.replace("</script", "<\\/script")
