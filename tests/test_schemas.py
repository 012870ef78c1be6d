"""Every key of every JSON document is described, and every described key occurs."""

import json

import pytest
from click.testing import CliRunner
from helpers import ROOT
from helpers.exports import job
from helpers.jobs import COMMUNICATOR, SIMPLE, processes, two_ranks, write
from helpers.programs import PAIR_A, PAIR_B, overlapped_gradients

from atlas_lp.analysis.analyze import analyze
from atlas_lp.cache import Store
from atlas_lp.cli import main
from atlas_lp.collectives.solver import CollectiveSolver
from atlas_lp.fabrics.fabric import load_fabric
from atlas_lp.schemas import DOCUMENTS, FILES
from atlas_lp.traces.reading.read import read_trace

_EXPAND = "goal expand --type allreduce --size 1MiB --ranks 4 --channels 2 --solve --json"
COMMANDS = (
    "analyze @two_pairs -o @out --json --stats --cache @cache",
    "analyze @overlapped_gradients --fabric-of AllReduce=@ethernet.toml --json --cache @cache",
    "analyze @two_ranks --json --cache @ethernet.toml/below",
    "analyze @two_ranks --json --cache @killed",
    "sweep @out --latency 0:1ms --json",
    "sweep @out --latency 0:1ms:3 --json",
    "sweep @out --bandwidth 10Gbps:10Tbps --json",
    "sweep @out --bandwidth 50Gbps:1Tbps:3 --json",
    "path @overlapped_gradients --json --cache @cache",
    "inspect @two_ranks --json",
    "inspect @two_pairs/node0.sqlite --allow-missing --json",
    "inspect @bare.sqlite --json",
    "validate @two_ranks --json --cache @cache",
    "cache ls --json --cache @cache",
    f"{_EXPAND} --stats",
    f"{_EXPAND} --solver sweep --points 3",
    f"{_EXPAND} --along overhead=0ns:1us",
    "goal solve @three.goal --json",
)
"""What writes the samples; ``@`` stands for the folder they lie in."""

ETHERNET = """name = "ethernet"
[scale_out]
latency = "20us"
overhead = "200ns"
message_gap = "5ns"
bandwidth = "100Gbps"
[scale_up]
latency = "500ns"
bandwidth = "150GB/s"
"""


def keys(value, path=""):
    """Paths of *value*: of every key, and ``path{}`` for every place where an object with keys of its own stands."""
    if isinstance(value, dict):
        yield f"{path}{{}}"
        for key, inner in value.items():
            yield f"{path}.{key}".lstrip(".")
            yield from keys(inner, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner, f"{path}[]")


def named(path, described):
    """*path* with ``*`` for a name that depends on the input."""
    parent = path.rpartition(".")[0]
    return path if path in described or f"{parent}.*" not in described else f"{parent}.*"


def two_pairs(folder):
    """All four ranks reduce, then one pair once and much, the other pair often and little: L decides which is T."""
    exports, ranks = processes(4, 1)
    for rank, process in enumerate(ranks):
        pair = PAIR_A if rank < 2 else PAIR_B
        process.init_communicator(pair, ranks=2, rank=rank % 2, at_ns=2_000)
        steps = [(COMMUNICATOR, 1 << 20)] + ([(PAIR_A, 1 << 22)] if rank < 2 else [(PAIR_B, 1 << 10)] * 12)
        for number, (communicator, size) in enumerate(steps):
            start = 10**9 + 1_000_000 * number
            process.collective(
                "AllReduce",
                size_bytes=size,
                communicator=communicator,
                stream=17,
                start_ns=start,
                end_ns=start + 1_000_000 - 1_000 * number * (rank % 2),
                channels=2,
                threads=SIMPLE,
                reduction="Sum",
            )
    write(exports, folder)


def samples_of_refused_and_damaged(folder):
    """An export without payloads, cache entries that cannot be read, and what a killed writer left."""
    job().write(folder / "bare.sqlite", payloads=None)
    cache = Store(folder / "killed")
    analyze(read_trace([folder / "two_ranks"]), CollectiveSolver(load_fabric(), store=cache))
    for entry in (folder / "killed").glob("??/*.arrow"):
        entry.write_bytes(b"no entry")
        (entry.parent / f".atlas-lp-{16 * 'a'}.arrow").write_bytes(b"half an entry")
    (folder / "cache" / "ab").mkdir(parents=True, exist_ok=True)
    (folder / "cache" / "ab" / "abcd.arrow").write_bytes(b"no entry")


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """What the verbs print, by the name of the document."""
    folder = tmp_path_factory.mktemp("samples")
    for builder in (two_ranks, two_pairs, overlapped_gradients):
        (folder / builder.__name__).mkdir()
        builder(folder / builder.__name__)
    samples_of_refused_and_damaged(folder)
    (folder / "ethernet.toml").write_text(ETHERNET)
    (folder / "three.goal").write_bytes((ROOT / "docs" / "three_ranks.goal").read_bytes())
    found = {}

    def run(words):
        result = CliRunner().invoke(main, words.replace("@", f"{folder}/").split(), catch_exceptions=False)
        assert result.exit_code == 0, (words, result.output)
        for text in (result.stdout, *result.stderr.splitlines()):
            if text.startswith("{"):
                document = json.loads(text)
                found.setdefault(document["schema"], []).append(document)

    for line in COMMANDS:
        run(line)
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_documents(samples, document):
    described, optional = document.described(), document.optional()
    seen = [{named(path, described) for path in keys(sample)} for sample in samples[document.name]]
    everywhere = {path for each in seen for path in each if not path.endswith("{}")}
    assert everywhere - set(described) == set(), "written and not described in atlas_lp/schemas.py"
    assert set(described) - everywhere == set(), "described in atlas_lp/schemas.py and never written"
    for each in seen:
        here = {path for path in described if f"{path.rpartition('.')[0]}{{}}" in each} - optional
        assert here - each == set(), "missing here: mark with ? in atlas_lp/schemas.py"


def test_names_are_unique_and_histories_end_in_the_version():
    names = [document.name for document in (*DOCUMENTS, *FILES)]
    assert len(set(names)) == len(names)
    for document in (*DOCUMENTS, *FILES):
        assert list(document.history) == list(range(1, document.version + 1))
        assert document.head() == {"schema": document.name, "version": document.version}
