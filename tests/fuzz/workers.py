"""Cases in processes of their own, with limits of time and memory: whatever kills one is a finding."""

import faulthandler
import multiprocessing
import resource
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from fuzz.judge import Case, Judge, Verdict

SECONDS = 10
"""Of the processor, for one case."""

PATIENCE = 120
"""Seconds of the clock for one case, which may wait for others on a busy machine, but not for ever."""

BYTES = 4 << 30
"""Address space of a process, of which two thirds are there for a case."""

Told = Callable[[Case, Verdict], None]


def _serve(connection: Connection, folder: str) -> None:
    """Answer cases until there are no more."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    with open(f"{folder}/stack", "w") as stack:
        faulthandler.enable(stack)
        faulthandler.register(signal.SIGPROF, stack, chain=True)
        judge = Judge(Path(folder))
        connection.send(None)
        while (case := connection.recv()) is not None:
            judge.original(case.attack.sample)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            verdict = _verdict(judge, case)
            signal.setitimer(signal.ITIMER_PROF, 0)
            connection.send(verdict)


def _verdict(judge: Judge, case: Case) -> Verdict:
    """The verdict on a case; what breaks here is not the product."""
    try:
        return judge.verdict(case)
    except Exception:
        return Verdict("the harness breaks", traceback.format_exc())


class _Worker:
    """A process, and a new one after each that is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, str(self.folder)), daemon=True)
        self.process.start()
        theirs.close()
        self.connection.recv()

    def verdict(self, case: Case) -> Verdict:
        self.connection.send(case)
        try:
            if self.connection.poll(PATIENCE):
                return self.connection.recv()  # type: ignore[no-any-return]
            outcome = f"hangs for {PATIENCE} s"
        except EOFError:
            outcome = "dies"
        self.process.kill()
        self.process.join()
        code = self.process.exitcode
        outcome = f"hangs for {SECONDS} s" if code == -signal.SIGPROF else outcome
        stack = (self.folder / "stack").read_text()
        self.start()
        return Verdict(outcome, f"exit code {code}\n{stack[-3000:]}")

    def stop(self) -> None:
        self.connection.send(None)
        self.process.join()


def run(cases: Iterable[Case], workers: int, tell: Told) -> None:
    """Judge all *cases*; *tell* is called with each."""
    waiting: SimpleQueue[Case] = SimpleQueue()
    done: SimpleQueue[tuple[Case, Verdict] | None] = SimpleQueue()
    for case in cases:
        waiting.put(case)

    def work(folder: Path) -> None:
        try:
            worker = _Worker(folder)
            while not waiting.empty():
                case = waiting.get()
                done.put((case, worker.verdict(case)))
            worker.stop()
        finally:
            done.put(None)

    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / str(number) for number in range(workers)]
        for place in places:
            place.mkdir()
            Thread(target=work, args=(place,), daemon=True).start()
        while workers:
            found = done.get()
            if found is None:
                workers -= 1
            else:
                tell(*found)
