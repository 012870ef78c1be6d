"""How all pictures look, and how a figure becomes the bytes of a file.

Pictures depend on nothing that the user has set up for matplotlib: neither a backend that does not exist nor settings
that need LaTeX can end the drawing, and equal inputs give equal bytes everywhere.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atlas_lp.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")

COLORS = ("#1971c2", "#e8590c", "#2f9e44", "#9c36b5", "#f08c00", "#0c8599", "#c2255c", "#5f3dc4")
"""One after another for kinds that have no colour of their own."""

INK, QUIET, BAND = "#495057", "#adb5bd", "#f1f3f5"
"""Text and lines, what is there and needs no attention, and the ground behind every other row."""

_RULES: Any = {
    "text.parse_math": False,
    "svg.hashsalt": "atlas-lp",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
_NO_DATES: Mapping[str, Any] = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_UNITS = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))


def check_kind(file: Path) -> None:
    """Raise :class:`~atlas_lp.errors.InputError` when *file* does not end as a picture does."""
    if file.suffix[1:] not in FORMATS:
        raise InputError(f"{file}: not the name of a picture; end it in .svg, .png or .pdf")


@contextmanager
def house_figure(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure of *width* by *height* inches and its axes, to be drawn as all pictures here are.

    Raises :class:`~atlas_lp.errors.InputError` when matplotlib does not start.
    """
    mpl = _matplotlib()
    from matplotlib.figure import Figure

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        mpl.rcdefaults()
        mpl.rcParams.update(_RULES)
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.add_subplot()


def _matplotlib() -> Any:
    """The library, imported without the backend of the environment, which it would look for and nobody needs here."""
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib as mpl
    except Exception as error:  # a file of settings that it cannot read
        raise InputError(f"matplotlib, which draws the picture, does not start ({error}); see `matplotlibrc`") from None
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    return mpl


def as_bytes(figure: Figure, kind: str) -> bytes:
    """The file of *figure*, *kind* being one of :data:`FORMATS`."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=144, metadata=_NO_DATES[kind])
    return buffer.getvalue()


def time_unit(longest_ns: float) -> tuple[str, float]:
    """The unit that a time axis up to *longest_ns* is labelled with, and how many ns it has."""
    return next((unit, scale) for unit, scale in _UNITS if longest_ns >= scale or scale == 1.0)
