"""``inspect``: what a trace holds, also when it is not enough for ``analyze``."""

import json
import tarfile

from click.testing import CliRunner
from helpers.exports import job, rank

from atlas_lp.cli import main
from atlas_lp.traces.synthetic.writer import ExportWriter

SAMPLE = "nsys/sendrecv_2gpu_nopayload_nsys2026.2.sqlite"


def inspect(*arguments):
    result = CliRunner().invoke(main, ["inspect", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_summary_of_the_base_job(tmp_path):
    path = job().write(tmp_path / "job.sqlite")
    found = json.loads(inspect(path, "--json"))
    assert (found["schema"], found["version"]) == ("atlas-lp/inspect", 1)
    assert found["communicators"] == [{"id": "0xc0ffee", "ranks": 2, "generation": 0}]
    assert [(o["type"], o["count"]) for o in found["operations"]] == [("AllGather", 2), ("AllReduce", 2)]
    assert (found["iterations"], found["clocks"]) == (1, [])
    text = inspect(path)
    assert "2 ranks on 1 nodes" in text
    assert "topology: assumed" in text


def test_clocks_of_hosts_are_a_diagnostic(tmp_path):
    for number in range(2):
        export = ExportWriter(f"node{number}", session_utc_ns=10**18 + 3_000_000 * number)
        rank(export, number)
        export.write(tmp_path / f"{number}.sqlite")
    clocks = json.loads(inspect(tmp_path, "--json"))["clocks"]
    assert [c["host"] for c in clocks] == ["node0", "node1"]
    assert clocks[1]["offset_ns"] == -3_000_010
    assert "Clock offsets" in inspect(tmp_path)


def test_missing_ranks_on_request(tmp_path):
    export = ExportWriter()
    rank(export, 0)
    path = export.write(tmp_path / "one.sqlite")
    refused = CliRunner().invoke(main, ["inspect", str(path)])
    assert refused.exit_code == 2
    assert "1 of 2 ranks are missing (1)" in refused.stderr
    assert "1 of 2 ranks are missing (1)" in inspect(path, "--allow-missing")


def test_send_and_receive_sample_is_counted(data_dir):
    found = json.loads(inspect(data_dir / SAMPLE, "--json"))
    processes = found["processes"]
    assert [p["groups"] for p in processes] == [32, 34]
    assert sum(p["calls"]["ncclSend"] for p in processes) == sum(p["calls"]["ncclRecv"] for p in processes) == 132
    assert [p["kernels"] for p in processes] == [{"ncclDevKernel_SendRecv": 33}] * 2
    assert found["nsys"] == ["2026.2.1.210, schema 3.25.0"]
    assert "INCLUDE_JSON = false" in found["refused"]
    assert "ncclDevKernel_SendRecv" in inspect(data_dir / SAMPLE)
    refused = CliRunner().invoke(main, ["analyze", str(data_dir / SAMPLE), "--json"])
    assert refused.exit_code == 2
    assert "nsys export --type sqlite --include-json true" in refused.stderr


def test_single_gpu_sample_is_refused(data_dir):
    for verb in ("inspect", "analyze"):
        path = str(data_dir / "nsys/single_gpu_no_nccl_nsys2026.1.sqlite")
        refused = CliRunner().invoke(main, [verb, path, *(["--json"] if verb == "analyze" else [])])
        assert refused.exit_code == 2
        assert "no NVTX events, so no NCCL calls" in refused.stderr


def test_companions_and_assumptions_are_options(tmp_path):
    path = job().write(tmp_path / "job.sqlite")
    (tmp_path / "nccl.log").write_text(
        "node0:1:1 [0] NCCL INFO NCCL version 2.26.2+cuda12.2\n"
        "node0:1:1 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..1}\n"
    )
    (tmp_path / "known.toml").write_text("[[collective]]\ntype = 'AllGather'\nchannels = 3\n")
    options = ["--nccl-log", tmp_path / "nccl.log", "--assume", tmp_path / "known.toml"]
    signatures = json.loads(inspect(path, "--json", *options))["signatures"]
    assert [(s["type"], s["protocol"], s["sources"]["channels"]) for s in signatures] == [
        ("AllGather", "simple", "assumed by the user"),
        ("AllReduce", "ll128", "companion: NCCL log"),
    ]


def test_kineto_folders(data_dir, tmp_path):
    with tarfile.open(data_dir / "kineto/dlrm_8ranks_v100.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    text = inspect(tmp_path / "dlrm_kineto")
    assert "8 ranks on 1 nodes (inferred: ranks fill hosts" in text
    assert "Kineto, which records no host" in text
