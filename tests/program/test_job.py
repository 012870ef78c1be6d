"""A job is asked, not built again: what one analysis finds, composes and reads, and how often."""

from collections import Counter

import pytest
from helpers.programs import overlapped_gradients, overlapping
from helpers.solving import FABRIC

from atlas_lp.analysis.analyze import analyze
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.program import job as job_module
from atlas_lp.program import replay as replay_module
from atlas_lp.traces.reading.read import read_trace
from atlas_lp.traces.signing import signed_trace


@pytest.fixture
def calls(monkeypatch):
    """How often the links of a reading were found, a program composed, and a timeline made."""
    counted: Counter[str] = Counter()

    def count(module, name, key):
        original = getattr(module, name)

        def counting(*arguments, **named):
            result = original(*arguments, **named)
            counted[key(result, arguments)] += 1
            return result

        monkeypatch.setattr(module, name, counting)

    count(job_module, "find_links", lambda links, _: f"links by {links.dependencies}")
    count(job_module, "compose", lambda program, _: f"program by {program.dependencies}")
    count(replay_module, "compose", lambda *_: "replay")
    count(signed_trace, "Timeline", lambda *_: "timeline")
    return counted


def test_an_analysis_composes_once_per_reading(tmp_path, calls):
    overlapped_gradients(tmp_path)
    analyze(read_trace([tmp_path]), CollectiveSolver(FABRIC))
    assert calls == {
        "timeline": 1,
        "links by events": 1,
        "links by streams": 1,
        "program by events": 1,
        "program by streams": 1,
        "replay": 1,
    }


def test_shared_nics_are_one_more_program(tmp_path, calls):
    overlapping(tmp_path)
    analyze(read_trace([tmp_path]), CollectiveSolver(FABRIC))
    assert calls["links by streams"] == calls["timeline"] == 1
    assert calls["program by streams"] == 2


@pytest.mark.parametrize("contention", [False, True])
def test_without_overlap_nics_are_not_shared_at_all(tmp_path, contention):
    overlapped_gradients(tmp_path)
    job = job_module.solve_job(read_trace([tmp_path]), CollectiveSolver(FABRIC), contention=contention)
    assert job.composed(contention=True) is job.composed(contention=False) is job.program
    assert job.native_ns(contention=not contention) == job.native.time_ns
