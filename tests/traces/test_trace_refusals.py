"""Files that are no trace: one line on stderr, exit code 2, no traceback, nothing written."""

import pytest
from click.testing import CliRunner
from helpers.exports import edit, job

from atlas_lp.cli import main
from atlas_lp.traces.synthetic.writer import ExportWriter


def text_file(path):
    path.write_text("ncclAllReduce\n" * 100)


def empty(path):
    path.touch()


def truncated(path):
    job().write(path)
    path.write_bytes(path.read_bytes()[:-4096])


def with_journal(path):
    job().write(path)
    path.with_name(path.name + "-journal").write_bytes(b"x")


def missing(path):
    pass


def no_nvtx(path):
    job().write(path, omit_tables=["NVTX_EVENTS"])


def no_nccl(path):
    export = ExportWriter()
    process = export.process(pid=1)
    process.user_range("step", 1_000, 2_000)
    process.kernel("gemm", stream=7, start_ns=10_000, end_ns=20_000)
    export.write(path)


def no_payloads(path):
    job().write(path, payloads=None)


def no_communicator(path):
    edit(job().write(path), "DELETE FROM NVTX_EVENTS WHERE jsonText LIKE '%No. of ranks%'")


REFUSALS = {
    missing: "no such file",
    text_file: "is not a SQLite database; export the report with: nsys export",
    empty: "is empty",
    truncated: "half-written",
    with_journal: "t.sqlite-journal exists: the export has not finished",
    no_nvtx: "capture with: nsys profile --trace cuda,nvtx",
    no_nccl: "none of NCCL",
    no_payloads: "export the report again: nsys export --type sqlite --include-json true",
    no_communicator: "start the capture before ncclCommInit",
}


@pytest.mark.parametrize("make", REFUSALS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("verb", ["inspect", "analyze"])
def test_refused_in_one_line(tmp_path, monkeypatch, make, verb):
    monkeypatch.setenv("ATLAS_LP_CACHE", str(tmp_path / "cache"))
    make(tmp_path / "t.sqlite")
    before = sorted(p.name for p in tmp_path.iterdir())
    arguments = [verb, str(tmp_path / "t.sqlite")]
    result = CliRunner().invoke(main, arguments + (["-o", str(tmp_path / "out")] if verb == "analyze" else []))
    if verb == "inspect" and make is no_payloads:
        assert result.exit_code == 0
        assert REFUSALS[make] in result.stdout
        return
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert len(result.stderr.splitlines()) == 1
    assert ("t.sqlite" in result.stderr) == (make is not no_communicator)  # which no file can be blamed for
    assert REFUSALS[make] in result.stderr
    assert result.stdout == ""
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_folders_without_traces_and_patterns_without_files(tmp_path):
    for name, words in ((tmp_path, "in this folder"), (tmp_path / "*.sqlite", "matches no file")):
        result = CliRunner().invoke(main, ["inspect", str(name)])
        assert result.exit_code == 2
        assert words in result.stderr


def test_reports_without_nsys_print_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    (tmp_path / "r.nsys-rep").write_bytes(b"x")
    result = CliRunner().invoke(main, ["inspect", str(tmp_path / "r.nsys-rep")])
    assert "run: nsys export --type sqlite --include-json true -o r.sqlite r.nsys-rep" in result.stderr
