"""Companions: NCCL debug logs of every wording, profiler-plugin dumps, a file of assumptions."""

import pytest
from helpers.exports import COMMUNICATOR, KIB, MIB, gaps, job, operations, read

from atlas_lp.errors import InputError, TraceError, UnsupportedError
from atlas_lp.signatures.nccl import codes
from atlas_lp.traces.companions.companions import Companions
from atlas_lp.traces.companions.debug_log import read_logs
from atlas_lp.traces.signing.sign import sign

LOG = "nccl_logs/allreduce_2gpu_nccl2.27_debug_info.log"
COMM = "comm 0x7f{} rank {} nranks 2 cudaDev {} nvmlDev {} busId 1000 commId {:#x} - Init {}"


def line(rest, rank=0, tid=None):
    return f"node0:{4100 + rank}:{tid or 4200 + rank} [{rank}] NCCL INFO {rest}\n"


def log_of(choices, *, api="ncclCommInitRankConfig ", rings=True):
    """A log of the base job: init of both ranks, rings, and the lines of *choices* on rank 0."""
    text = "node0:4100:4100 [0] NCCL INFO NCCL version 2.26.2+cuda12.2\n"
    for rank in range(2):
        text += line(api + COMM.format(rank, rank, rank, rank, COMMUNICATOR, "START"), rank)
        if rings:
            text += "".join(line(f"Ring {c:02} : {1 - rank} -> {rank} -> {1 - rank}", rank) for c in range(8))
        text += line(api + COMM.format(rank, rank, rank, rank, COMMUNICATOR, "COMPLETE"), rank)
    return text + "".join(line(choice) for choice in choices)


def with_log(tmp_path, text, **options):
    (tmp_path / "nccl.log").write_text(text)
    path = job(**options).write(tmp_path / "job.sqlite")
    return read(path, companions=Companions(nccl_logs=[tmp_path / "nccl.log"]))


WORDINGS = {
    "2.20": (f"{MIB} Bytes -> Algo 1 proto 1 time 12.5", 4),
    "2.23": (f"AllReduce: {MIB} Bytes -> Algo 1 proto 1 time 12.5", 4),
    "2.24": (f"AllReduce: {MIB} Bytes -> Algo RING proto LL128 channel{{Lo..Hi}}={{2..7}}", 6),
}


@pytest.mark.parametrize("version", WORDINGS)
def test_choices_of_every_wording(tmp_path, version):
    choice, channels = WORDINGS[version]
    trace = with_log(tmp_path, log_of([choice]))
    assert operations(trace, "algorithm", "protocol", "channels", "choice_source")[0] == (
        "ring",
        "ll128",
        channels,
        "companion: NCCL log",
    )
    assert operations(trace, "algorithm")[1] == ("",)
    assert trace.topologies[0].rings == ((0, 1),) * 8
    assert (trace.nccl_version.value, trace.nccl_version.source) == ("2.26.2", "companion: NCCL log")
    signed = sign(trace)[0][0]
    assert dict(signed.sources)["protocol"] == dict(signed.sources)["topology"] == "companion: NCCL log"
    assert dict(signed.sources)["channels"].startswith("companion" if version == "2.24" else "inferred")


@pytest.mark.parametrize("algorithm", ["NVLS", "COLLNET_CHAIN"])
def test_algorithms_that_kernels_hide_are_signed(tmp_path, algorithm):
    choice = f"AllReduce: {MIB} Bytes -> Algo {algorithm} proto SIMPLE channel{{Lo..Hi}}={{0..3}}"
    trace = with_log(tmp_path, log_of([choice]))
    signed = sign(trace if algorithm == "NVLS" else trace.placed(1))[0][0]
    assert signed.signature.algorithm == algorithm.lower()
    assert dict(signed.sources)["topology"].startswith("assumed: ")


@pytest.mark.parametrize("api", ["", "ncclCommInitRank ", "[Rank 0] ncclCommInitRankScalable "])
def test_communicator_lines_of_every_wording(tmp_path, api):
    assert with_log(tmp_path, log_of([], api=api)).topologies[0].rings == ((0, 1),) * 8


def test_choices_that_differ_are_taken_in_order(tmp_path):
    choices = [f"AllReduce: {KIB} Bytes -> Algo RING proto {p} channel{{Lo..Hi}}={{0..1}}" for p in ("LL", "SIMPLE")]
    trace = with_log(tmp_path, log_of(choices), steps=[("AllReduce", KIB)] * 2)
    assert operations(trace, "rank", "protocol") == [(0, "ll"), (0, "simple"), (1, "ll"), (1, "simple")]
    (tmp_path / "three").mkdir()
    ambiguous = with_log(tmp_path / "three", log_of(choices), steps=[("AllReduce", KIB)] * 3)
    assert gaps(ambiguous)["companion-ambiguous"] == 2
    assert set(operations(ambiguous, "protocol")) == {("",)}


def test_choices_take_the_communicator_of_the_call_before(tmp_path):
    call = f"AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count {MIB // 2} datatype 9 op 0 root 0 comm 0x7f0"
    choice = f"AllReduce: {MIB} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..3}}"
    text = log_of([f"{call} [nranks=2] stream 0x1", choice])
    (tmp_path / "nccl.log").write_text(text)
    (decision,) = read_logs([tmp_path / "nccl.log"]).decisions
    assert (decision.communicator, decision.element_bytes, decision.channels) == (COMMUNICATOR, 2, 4)


def test_channels_for_messages(tmp_path):
    counts = "4 coll channels, 4 collnet channels, 0 nvls channels, 16 p2p channels, 4 p2p channels per peer"
    text = log_of([], rings=False) + line("P2P Chunksize set to 524288") + line(counts)
    trace = with_log(tmp_path, text, steps=[("AllToAll", KIB)])
    assert trace.topologies[0].p2p_channels == (16, 4)
    assert dict(sign(trace)[0][0].sources)["channels"] == "companion: NCCL log"


def test_other_choices_are_named(tmp_path):
    choices = [
        f"AllReduce [Symmetric]: {MIB} Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512",
        "AllGather [Copy Engine]: 4096 Bytes -> cudaMemcpy<batch>",
    ]
    trace = with_log(tmp_path, log_of(choices))
    assert gaps(trace) == {"log-choices": 1}
    assert sum(gap.code == "log-choices" for gap in trace.gaps) == 2


def test_files_without_a_line_of_nccl_are_refused(tmp_path):
    with pytest.raises(TraceError, match="NCCL_DEBUG=INFO"):
        with_log(tmp_path, "hello\n")
    with pytest.raises(TraceError, match="cannot be read"):
        read_logs([tmp_path / "none.log"])


def test_real_log(data_dir):
    log = read_logs([data_dir / LOG])
    assert (log.version, len(log.decisions), len(log.others)) == ("2.27.7", 495, 0)
    assert {(d.type, d.algorithm, d.protocol, d.channels) for d in log.decisions} == {
        ("AllReduce", "ring", "simple", 24)
    }
    assert {d.communicator for d in log.decisions} == {0x54FE282D32A87D85}
    ((identity, communicator),) = log.communicators.items()
    assert (identity, communicator.ranks, communicator.channels) == (0x54FE282D32A87D85, 2, 24)
    assert communicator.next_rank == {(c, r, 1 - r) for c in range(24) for r in range(2)}
    assert {(c, r): p for c, r, p, _ in communicator.trees}[0, 1] == 0
    assert len(communicator.trees) == 48
    assert (communicator.p2p_channels, communicator.p2p_channels_per_peer) == (32, 32)


EVENT = (
    '{{"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 0, "pid": 1, "tid": 1, "ts": 1.5, "args": {{"SeqNum": 0, '
    '"CommHash": {}, "Rank": 0, "Count": 262144, "Datatype": {}, "Algorithm": "RING", "Protocol": "LL128", '
    '"{}": 2}}}},\n'
)


@pytest.mark.parametrize(
    ("datatype", "channels"),
    [('"ncclFloat32"', "nChannels"), ("ncclFloat32", "nChannels"), ('"ncclFloat32"', "nMaxChannels")],
)
def test_profiler_dumps_are_not_strict_json(tmp_path, datatype, channels):
    dump = tmp_path / "dump.txt"
    dump.write_text("[\n" + EVENT.format(COMMUNICATOR, datatype, channels) + "{}]")
    trace = read(job().write(tmp_path / "job.sqlite"), companions=Companions(profiler_dumps=[dump]))
    assert operations(trace, "algorithm", "protocol", "channels", "element_bytes", "choice_source")[0] == (
        "ring",
        "ll128",
        2,
        4,
        "companion: NCCL profiler plugin",
    )


def test_profiler_dumps_without_collectives_are_refused(tmp_path):
    (tmp_path / "dump.txt").write_text("[{}]")
    with pytest.raises(TraceError, match="no collective"):
        read(job().write(tmp_path / "job.sqlite"), companions=Companions(profiler_dumps=[tmp_path / "dump.txt"]))


def assumed(tmp_path, text):
    (tmp_path / "known.toml").write_text(text)
    return read(job().write(tmp_path / "job.sqlite"), companions=Companions(assumptions=tmp_path / "known.toml"))


def test_assumptions_stand_in_for_inference_and_say_so(tmp_path):
    trace = assumed(
        tmp_path,
        '[[collective]]\ntype = "AllReduce"\nfrom_size = "1MiB"\n'
        'protocol = "ll128"\nalgorithm = "ring"\nchannels = 2\n'
        f'[[topology]]\ncommunicator = "{COMMUNICATOR:#x}"\nrings = [[0, 1]]\n',
    )
    assert operations(trace, "protocol", "channels")[:2] == [("ll128", 2), ("", 4)]
    sources = dict(sign(trace)[0][0].sources)
    assert {sources[f] for f in ("protocol", "channels", "topology")} == {"assumed by the user"}


APPROXIMATE = '[[collective]]\ntype = "AllReduce"\nalgorithm = "{}"\nprotocol = "simple"\n'


def test_every_algorithm_of_the_table_is_signed(tmp_path):
    signed = sign(assumed(tmp_path, APPROXIMATE.format("nvls")))[0][0]
    assert (signed.signature.algorithm, signed.ranks) == ("nvls", (0, 1))
    assert dict(signed.sources)["topology"].startswith("assumed: NVLS is an approximation: ")


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("nvls_tree", "NVLSTree joins at least two nodes"),
        ("pat", r"AllReduce by pat \(assumed by the user\) has no schedule yet"),
    ],
)
def test_an_algorithm_that_does_not_fit_is_refused(tmp_path, algorithm, words):
    with pytest.raises(UnsupportedError, match=words):
        sign(assumed(tmp_path, APPROXIMATE.format(algorithm)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[collective]]\nprotocl = 'll'", "unknown key 'protocl'"),
        ("[[collective]]\ntype = 'AllReduce'", "it says nothing"),
        ("[[collective]]\nprotocol = 'fast'", "unknown protocol 'fast'"),
        ("[[collective]]\nalgorithm = 'star'", "unknown algorithm 'star'"),
        ("[[collective]]\nchannels = -1", "channels must be"),
        ("[[topology]]\ncommunicator = 1\nrings = [[0, 0]]", "each rank from 0 on once"),
        ("[topology]\n", r"must be written as \[\[topology\]\]"),
        ("[[x]]\n", "unknown table 'x'"),
        ("[[collective]]\nprotocol = '²'", "unknown protocol '²'"),
        (f"[[collective]]\nalgorithm = '{'9' * 5000}'", "unknown algorithm '999"),
        ("[[collective]]\nprotocol = 'll'\ncommunicator = '²'", "communicator '²' is no number of 64 bits"),
        (f"[[collective]]\nprotocol = 'll'\nchannels = 0x{'f' * 5000}", "of more digits than anything has"),
        ("x = ", "not TOML"),
    ],
)
def test_wrong_assumptions_are_refused(tmp_path, text, words):
    with pytest.raises(InputError, match=words):
        assumed(tmp_path, text)


@pytest.mark.parametrize("text", ["²", "٣", "-1", "7", "99", "9" * 5000, "", "1_0"])
def test_what_is_no_code_of_nccl_is_unknown(text):
    assert (codes.algorithm(text), codes.protocol(text)) == (None, None)
    assert codes.datatype_bytes(text) == (4 if text == "7" else 0)


def test_codes_of_nccl_are_words():
    assert [codes.algorithm(text) for text in ("0", "1", "6", "NVLSTree")] == ["tree", "ring", "pat", "nvls_tree"]
    assert [codes.protocol(text) for text in ("0", "1", "2", "LL128")] == ["ll", "ll128", "simple", "ll128"]
    assert [codes.datatype_bytes(text) for text in ("0", "7", "8", "ncclHalf")] == [1, 4, 8, 2]
