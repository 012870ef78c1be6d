"""A trace solved on the default fabric, for tests that ask the result."""

from fractions import Fraction

from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.program.compose import compose
from atlas_lp.program.dependencies.readings import find_links
from atlas_lp.program.job import solve_job
from atlas_lp.solver.axis import point
from atlas_lp.solver.envelope import RankClasses
from atlas_lp.solver.longest_path import Evaluator
from atlas_lp.traces.reading.read import read_trace
from atlas_lp.traces.signing.sign import sign
from atlas_lp.traces.signing.signed_trace import SignedTrace
from atlas_lp.validation.validate import default_points

FABRIC = load_fabric()
GAP = Fraction(1, 25)
POINTS = default_points(FABRIC)


def reduction_ns(folder, latency):
    signed, _ = sign(read_trace([folder]))
    return CollectiveSolver(FABRIC).solve(signed[0].signature).time_ns(latency, GAP)


def composed(trace, vectors=None, dependencies=None):
    """The program of a trace whose instances take *vectors*, by default nothing at all."""
    signed = SignedTrace.of(trace)
    chosen = [(0,) * 7] * len(signed.instances) if vectors is None else vectors
    return compose(signed, [RankClasses.alike((vector,)) for vector in chosen], find_links(signed, dependencies))


def replay_ns(trace, dependencies=None):
    """T of the recording put through its own dependencies, without the replay of the product; and the measured span."""
    timeline = SignedTrace.of(trace).timeline
    durations, _ = timeline.durations_ns()
    program = composed(trace, [(int(d), 0, 0, 0, 0, 0, 0) for d in durations], dependencies)
    return Evaluator(program.graph, FABRIC.theta()).at((0, 0, 1)).time_ns, timeline.measured_ns


def solved(trace, **asked):
    return solve_job(trace, CollectiveSolver(FABRIC), **{"dependencies": "streams", **asked})


def time_ns(job, where):
    return job.at(point(*where)).time_ns
