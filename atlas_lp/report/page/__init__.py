"""The report: one HTML file that opens anywhere, offline, with the numbers and what they assume.

Figures are small inline SVG, drawn once for wide and once for narrow windows; colours come from the style sheet
and follow the reader's light or dark scheme.  The same summary gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from atlas_lp.analysis.regimes import BANDS
from atlas_lp.report.page import view
from atlas_lp.report.page.regime_figure import map_figures
from atlas_lp.report.words import headline
from atlas_lp.texts import plain


def _shown(value: Any) -> Any:
    """Every text on the page as it can be seen; what is markup already was made here."""
    return plain(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def render_report(summary: Mapping[str, Any]) -> str:
    """Return *summary* (as ``analyze`` makes it) as one self-contained HTML page."""
    mapped = view.has_map(summary)
    environment = Environment(
        loader=PackageLoader("atlas_lp", "report/page"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kept"] = view.keep_quantities
    return environment.get_template("report.html").render(
        synthetic=summary["trace"]["synthetic"],
        what_if=summary["what_if"],
        subtitle=view.subtitle(summary),
        headline=headline(summary),
        cards=view.cards(summary),
        percent=f"{summary['tolerance']['percent']:g}",
        curves=view.curves(summary),
        map_figures=map_figures(summary) if mapped else [],
        numbers=view.numbers(summary) if mapped else None,
        legend=view.legend(),
        bands=BANDS,
        breakdown=view.breakdown(summary),
        signatures=view.signatures(summary),
        assumptions=summary["assumptions"],
        gaps=summary["gaps"],
        check=view.check(summary),
        provenance=view.provenance(summary),
        data=view.script_data(summary),
    )
