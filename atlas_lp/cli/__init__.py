"""The command line: one module per verb, errors turned into one line and an exit code.

Exit codes: 0 an answer, 1 a threshold given by the user is exceeded, 2 refused or bad input, 3 withdrawn by a
validation gate, 70 a defect of atlas-lp, 130 interrupted, 141 nobody reads the output, 143 ended by SIGTERM (129 by
SIGHUP).  Heavy libraries are imported inside the verbs, so that help is instant.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import traceback
import warnings
from typing import Any, NoReturn

import click

from atlas_lp import __version__
from atlas_lp.cli.verbs.analyze import analyze
from atlas_lp.cli.verbs.cache import cache
from atlas_lp.cli.verbs.demo import demo
from atlas_lp.cli.verbs.goal import goal
from atlas_lp.cli.verbs.inspect import inspect
from atlas_lp.cli.verbs.pack import pack
from atlas_lp.cli.verbs.path import path
from atlas_lp.cli.verbs.sweep import sweep
from atlas_lp.cli.verbs.validate import validate
from atlas_lp.errors import AtlasError, InputError
from atlas_lp.texts import plain, plain_lines, shortened


class _Refusal(click.ClickException):
    """An :class:`AtlasError` on its way to stderr."""

    exit_code = 2


_LONGEST_REFUSAL = 2000


def _refusal(error: AtlasError) -> _Refusal:
    refusal = _Refusal(plain(shortened(str(error), _LONGEST_REFUSAL)))
    vars(refusal)["exit_code"] = error.exit_code
    return refusal


class _Root(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AtlasError as error:
            raise _refusal(error) from None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:  # which looking whether a file is there raises
                raise _refusal(InputError(f"{error.filename}: {error.strerror}")) from None
            raise


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="atlas-lp")
def main() -> None:
    """How long would a recorded NCCL job take on another network?

    Reads Nsight Systems traces and answers with exact functions T(L), T(G) and T(L, G) of the latency L and
    the gap per byte G (one over bandwidth), the recorded schedule kept as it is.

    \b
    Example:
      atlas-lp demo                              try it on a synthetic trace
      atlas-lp inspect traces/                   what is in the trace, what is missing
      atlas-lp analyze traces/ -o out            solve; then open out/report.html
      atlas-lp sweep out --latency 0:100us:11    T at eleven latencies
      atlas-lp path traces/ --latency 100us      what determines T there
    """


for _command in (inspect, analyze, sweep, pack, path, validate, goal, cache, demo):
    main.add_command(_command)


_DEFECT, _INTERRUPTED, _NO_READER, _BY_SIGNAL = 70, 130, 141, 128


def run() -> NoReturn:
    """The command ``atlas-lp``: :func:`main`, and an exit code for whatever ends it.

    Code 1 says that a threshold is exceeded and nothing else, so that scripts can rely on it.
    """
    _prepare()
    try:
        code = main.main(prog_name="atlas-lp", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        _show(error)
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        code = _INTERRUPTED
    except BrokenPipeError:
        code = _NO_READER
    except SystemExit as ended:
        # click exits by itself in one case only: with 1, for a broken pipe.
        code = _NO_READER if ended.code == 1 else ended.code
    except OSError as error:
        if not _is_of_stdout(error):
            code = _defect()
        else:
            click.echo(f"Error: the output cannot be written ({error.strerror})", err=True)
            code = _Refusal.exit_code
    except Exception:  # the last line of defence: whatever it is, it is no answer and no threshold
        code = _defect()
    _leave(code if isinstance(code, int) else 0)


def _prepare() -> None:
    """Let signals end the command in order, warnings be a line, and what a terminal has no sign for no defect."""
    warnings.formatwarning = _warning
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # which nohup changes
            signal.signal(number, _end)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _end(number: int, _: object) -> NoReturn:
    """End as Ctrl-C does: programs that were started are ended, and files that are half written are swept."""
    raise SystemExit(_BY_SIGNAL + number)


def _warning(message: Warning | str, *_: object, **__: object) -> str:
    return f"Warning: {shortened(plain(str(message)), _LONGEST_REFUSAL)}\n"


def _show(error: click.ClickException) -> None:
    """Show what click refuses, which may quote whatever was typed."""
    words = io.StringIO()
    error.show(words)
    lines = words.getvalue().split("\n")
    click.echo("\n".join(shortened(plain(line), _LONGEST_REFUSAL) for line in lines), nl=False, err=True)


def _is_of_stdout(error: OSError) -> bool:
    """Whether *error* is of writing what is printed: it names no file."""
    return error.filename is None


def _defect() -> int:
    """Show where atlas-lp broke, and what to do about it."""
    click.echo(plain_lines(traceback.format_exc()), nl=False, err=True)
    words = "this is a defect of atlas-lp, not of your input; please report it with the lines above"
    click.echo(f"Error: {words}", err=True)
    return _DEFECT


def _leave(code: int) -> NoReturn:
    """Exit; what could not be written to a closed or full output is not tried again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
