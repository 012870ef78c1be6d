"""An analysis on disk: ``analysis.arrow`` for later verbs, ``summary.json``, and the page for people.

The three are one thing: they are replaced together (see :mod:`atlas_lp.folders`).
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from atlas_lp.analysis.analyze import Analysis
from atlas_lp.cache.codec import decoded, encoded, opened
from atlas_lp.errors import DamageError, InputError, VersionError
from atlas_lp.files import json_text, write_file
from atlas_lp.folders import check_replaceable, replacing_folder
from atlas_lp.schemas import ANALYSIS_FILE

PAGE = "report.html"
FILES = ("analysis.arrow", "summary.json", PAGE)


def check_output(folder: Path, force: bool) -> None:
    """Refuse, before anything is solved, a folder that cannot be written, or that holds an analysis already.

    With *force* the analysis that is there is replaced.
    """
    check_replaceable(folder, FILES, force)


def write_analysis(folder: Path, analysis: Analysis, page: str | None = None) -> None:
    """Make the files of *analysis* those of *folder*, all at once, the *page* that was rendered of it among them.

    Raises :class:`~atlas_lp.errors.OutputError` for what cannot be written; what was there is still there then.
    """
    with replacing_folder(folder, FILES) as new:
        write_files(new, analysis, page)


def write_files(folder: Path, analysis: Analysis, page: str | None) -> None:
    """Write the files of *analysis* into a *folder* that is there, one after the other.

    Raises :class:`~atlas_lp.errors.OutputError` for what cannot be written.
    """
    about = {
        "native": [str(value) for value in analysis.native],
        "summary": {key: value for key, value in analysis.summary.items() if key != "cache"},
    }
    write_file(folder / FILES[0], encoded(analysis.envelope, ANALYSIS_FILE, about))
    write_file(folder / FILES[1], json_text(analysis.summary).encode())
    if page is not None:
        write_file(folder / PAGE, page.encode())


def read_analysis(folder: Path) -> Analysis:
    """Read back the analysis in *folder* (its summary without cache counters).

    Raises :class:`~atlas_lp.errors.InputError` when there is none, when it is damaged, or another version wrote it.
    """
    path = folder / FILES[0] if folder.is_dir() else folder
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: no analysis, it is no regular file; run atlas-lp analyze again")
    try:
        table, about = opened(path.read_bytes(), ANALYSIS_FILE)
        latency, gap = (Fraction(value) for value in about["native"])
        return Analysis(decoded(table, about), (latency, gap), about["summary"])
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{folder}: no analysis here; make one with: atlas-lp analyze TRACE -o {folder}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except VersionError as error:
        words = f"written by another version of atlas-lp ({error})"
        raise InputError(f"{path}: {words}; run atlas-lp analyze again") from None
    except (DamageError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: damaged, or no analysis ({error}); run atlas-lp analyze again") from None
