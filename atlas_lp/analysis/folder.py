"""An analysis on disk: ``analysis.arrow`` for later verbs, ``summary.json``, and the page for people."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from atlas_lp.analysis.analyze import Analysis
from atlas_lp.cache.codec import DAMAGE, decoded, encoded, read_about
from atlas_lp.errors import InputError
from atlas_lp.files import check_folder, check_free, json_text, make_folder, write_file
from atlas_lp.schemas import ANALYSIS_FILE

PAGE = "report.html"
FILES = ("analysis.arrow", "summary.json", PAGE)


def check_output(folder: Path, force: bool) -> None:
    """Refuse, before anything is solved, a folder that cannot be written, or that holds an analysis already.

    With *force* the analysis that is there is replaced.
    """
    check_folder(folder)
    present = [name for name in FILES if (folder / name).exists()]
    if present and not force:
        raise InputError(f"{folder}: holds {present[0]} already; overwrite with -f or choose another with -o")
    for name in present:
        check_free(folder / name, force)


def write_analysis(folder: Path, analysis: Analysis, page: str | None = None) -> None:
    """Write the files of *analysis* into *folder*, made if needed, the *page* that was rendered of it among them.

    Raises :class:`~atlas_lp.errors.OutputError` for what cannot be written.
    """
    about = {
        **ANALYSIS_FILE.head(),
        "native": [str(value) for value in analysis.native],
        "summary": {key: value for key, value in analysis.summary.items() if key != "cache"},
    }
    texts = (json_text(analysis.summary), page)
    contents = (encoded(analysis.envelope, about), *(None if text is None else text.encode() for text in texts))
    make_folder(folder)
    for name, content in zip(FILES, contents, strict=True):
        if content is not None:
            write_file(folder / name, content)


def read_analysis(folder: Path) -> Analysis:
    """Read back the analysis in *folder* (its summary without cache counters).

    Raises :class:`~atlas_lp.errors.InputError` when there is none, or another version wrote it.
    """
    path = folder / FILES[0] if folder.is_dir() else folder
    try:
        table, about = read_about(path)
        if (about["schema"], about["version"]) != (ANALYSIS_FILE.name, ANALYSIS_FILE.version):
            raise InputError(f"{path}: written by another version of atlas-lp; run atlas-lp analyze again")
        latency, gap = (Fraction(value) for value in about["native"])
        return Analysis(decoded(table, about), (latency, gap), about["summary"])
    except FileNotFoundError:
        raise InputError(f"{folder}: no analysis here; make one with: atlas-lp analyze TRACE -o {folder}") from None
    except DAMAGE:
        raise InputError(f"{path}: not an analysis file, or a damaged one; run atlas-lp analyze again") from None
