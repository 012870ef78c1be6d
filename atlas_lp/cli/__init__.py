"""The command line: one module per verb, errors turned into one line and an exit code.

Exit codes: 0 an answer, 1 a threshold given by the user is exceeded, 2 refused or bad input, 3 withdrawn by a
validation gate.  Heavy libraries are imported inside the verbs, so that help is instant.
"""

from __future__ import annotations

from typing import Any

import click

from atlas_lp import __version__
from atlas_lp.cli.analyze import analyze
from atlas_lp.cli.cache import cache
from atlas_lp.cli.demo import demo
from atlas_lp.cli.goal import goal
from atlas_lp.cli.inspect import inspect
from atlas_lp.cli.pack import pack
from atlas_lp.cli.path import path
from atlas_lp.cli.sweep import sweep
from atlas_lp.cli.validate import validate
from atlas_lp.errors import AtlasError


class _Refusal(click.ClickException):
    """An :class:`AtlasError` on its way to stderr."""


def _refusal(error: AtlasError) -> _Refusal:
    refusal = _Refusal(" ".join(str(error).split()))
    vars(refusal)["exit_code"] = error.exit_code
    return refusal


class _Root(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AtlasError as error:
            raise _refusal(error) from None


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
