"""A trace solved on the default fabric, for tests that ask the result."""

from fractions import Fraction

from atlas_lp.cache import Store
from atlas_lp.collectives.solver import solve_signature
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.program.job import solve_job
from atlas_lp.solver.envelope import Box
from atlas_lp.solver.longest_path import point
from atlas_lp.traces.reading.read import read_trace
from atlas_lp.traces.signing.sign import sign
from atlas_lp.validation.validate import default_points

FABRIC = load_fabric()
GAP = Fraction(1, 25)
POINTS = default_points(FABRIC)


def reduction_ns(folder, latency):
    signed, _ = sign(read_trace([folder]))
    return solve_signature(signed[0].signature, FABRIC, Box()).time_ns(latency, GAP)


def solved(trace, **asked):
    return solve_job(trace, FABRIC, Box(), Store(None), **{"dependencies": "streams", **asked})


def time_ns(job, where):
    return job.at(point(*where)).time_ns
