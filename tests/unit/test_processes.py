"""Other processes: what they answer, why they do not, that they are halted, and that none outlives who has started it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dslc.deadline import OVER, Deadline
from dslc.processes import process
from dslc.processes.child import Child, Service, ready
from dslc.processes.forked import Fork, mapped
from dslc.processes.process import Command, Job, ProcessFailed, ProcessFailure, halted

#: answers with what it is sent; a number is how it ends, a text what it prints, None that it never answers
ECHO = """
import os, time
from dslc.processes.child import Asker
asker = Asker()
for message in asker:
    if isinstance(message, int):
        os._exit(message)
    if message is None:
        time.sleep(300)
    print("not among the messages", flush=True)
    asker.answer(message)
"""
#: says the number of a process that it has started, which counts in a file
BELOW = """
import subprocess, sys, time
from dslc.processes.child import Asker
count = "import sys, time\\nfor k in range(10**9): open(sys.argv[1], 'w').write(str(k)); time.sleep(0.01)"
below = subprocess.Popen([sys.executable, "-c", count, sys.argv[1]])
for message in (asker := Asker()):
    asker.answer(below.pid)
"""


#: a fork that has all that its parent has open, and lives longer
FORKED = (
    "import time\nif not os.fork():\n    [os.close(one) for one in range(3)]\n    time.sleep(40)\n    os._exit(0)\n"
)


def python(text: str, *arguments: str) -> Command:
    return Command((sys.executable, "-c", text, *arguments))


def soon(true: Callable[[], bool], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for is a zombie."""
    said = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return not said.strip() or said.startswith("Z")


# ---- messages ---------------------------------------------------------------------------------------------------


def test_a_child_answers_each_message_large_ones_too() -> None:
    with Child(python(ECHO)) as child:
        for message in ("one", b"x" * (5 << 20), {"a": [1.5, None]}):
            child.send(message)
            assert child.receive() == message


def test_who_has_news_is_found_without_waiting_for_the_others() -> None:
    with Child(python(ECHO)) as first, Child(python(ECHO)) as second:
        assert ready([first, second], OVER) == []
        second.send("news")
        assert ready([first, second], Deadline.after(30)) == [second]


@pytest.mark.parametrize(("message", "failure", "said"), [
    (None, ProcessFailure.LATE, "in time"), (3, ProcessFailure.ENDED, "exit code 3"),
    (b"x" * (5 << 20), ProcessFailure.LATE, "in time"),
])  # fmt: skip
def test_a_service_says_why_there_is_no_answer_and_starts_anew(
    message: object, failure: ProcessFailure, said: str
) -> None:
    # one that does not even read what it is sent is late, too
    texts = ["import time; time.sleep(300)" if isinstance(message, bytes) else ECHO, ECHO]
    service = Service(lambda: Child(python(texts.pop(0))))
    with pytest.raises(ProcessFailed, match=said) as problem:
        service.ask(message, Deadline.after(0.5 if failure is ProcessFailure.LATE else 30))
    assert problem.value.failure is failure and service.child is None
    assert service.ask("again") == "again"
    service.close()


def test_a_child_that_the_system_kills_says_so() -> None:
    service = Service(lambda: Child(python(ECHO)))
    service.running().kill()
    with pytest.raises(ProcessFailed, match="memory") as problem:
        service.ask("asked")
    assert problem.value.failure is ProcessFailure.MEMORY


def test_what_cannot_be_started_is_refused(tmp_path: Path) -> None:
    for start in (lambda command: Child(command), lambda command: Job(command, 1)):
        with pytest.raises(ProcessFailed) as problem:
            start(Command((str(tmp_path / "nothing"),)))
        assert problem.value.failure is ProcessFailure.REFUSED


# ---- jobs -------------------------------------------------------------------------------------------------------


def test_a_job_says_how_it_ended_and_what_it_said(tmp_path: Path) -> None:
    text = "import os, sys; print(os.getcwd(), os.environ['GIVEN']); sys.exit('wrong')"
    command = Command((sys.executable, "-c", text), (("GIVEN", "here"),), tmp_path)
    with Job(command, 30) as job:
        assert job.answer(1 << 10) == (1, f"{tmp_path} here\nwrong\n")
        assert job.ended


def test_a_job_has_so_much_time_memory_and_room(tmp_path: Path) -> None:
    with Job(python("import time; time.sleep(300)"), 0.2) as job, pytest.raises(ProcessFailed) as problem:
        job.answer(1)
    assert problem.value.failure is ProcessFailure.LATE and gone(job.pid)
    if sys.platform == "linux":
        large = Command((sys.executable, "-c", "x = bytearray(1 << 30)"), memory=1 << 29)
        with Job(large, 30) as job:
            assert "MemoryError" in job.answer(1 << 10)[1]
    long = Command((sys.executable, "-c", "open('much', 'wb').write(bytes(1 << 20))"), folder=tmp_path, written=1 << 16)
    with Job(long, 30) as job:
        assert job.answer(1 << 10)[0] != 0 and (tmp_path / "much").stat().st_size <= 1 << 16


# ---- halted, and ended ------------------------------------------------------------------------------------------


def test_halted_processes_leave_the_processor_with_all_below_them(tmp_path: Path) -> None:
    file = tmp_path / "count"

    def moves() -> bool:
        before = file.read_text()
        time.sleep(0.2)
        return file.read_text() != before

    with Child(python(BELOW, str(file))) as child:
        assert soon(lambda: file.exists() and file.read_text() != "")
        with halted([child]):
            # what was being written is
            time.sleep(0.1)
            assert not moves()
        assert soon(moves)


def test_a_halted_service_goes_on_when_it_is_asked() -> None:
    service = Service(lambda: Child(python(ECHO)))
    assert service.ask(1.5) == 1.5
    service.halt()
    assert service.ask(2.5, Deadline.after(30)) == 2.5
    service.close()


def test_a_process_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    with Child(python(BELOW, str(tmp_path / "count"))) as child:
        child.send("which?")
        below = child.receive()
        assert not gone(below)
    assert gone(child.pid) and soon(lambda: gone(below))


@pytest.mark.parametrize("state", ["halted", "running", "forked"])
def test_a_process_ends_with_who_has_started_it(tmp_path: Path, state: str) -> None:
    text = (
        "import os, signal, sys\nfrom dslc.processes.child import Child\nfrom dslc.processes.process import Command\n"
        f"child = Child(Command((sys.executable, '-c', {BELOW!r}, sys.argv[1])))\nchild.send('which?')\nbelow = child.receive()\n"
        + {"halted": "child.halt()\n", "running": "", "forked": FORKED}[state]
        + "print(child.pid, below, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path / "count")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == -signal.SIGKILL
    assert all(soon(lambda pid=int(pid): gone(pid)) for pid in ran.stdout.split())


def test_signals_go_only_to_a_group_whose_leader_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may be another's once it was waited for; and a fork has the object, but not the process."""
    sent: list[tuple[int, int]] = []
    real = os.killpg
    monkeypatch.setattr(process.os, "killpg", lambda group, number: (sent.append((group, number)), real(group, number)))
    with Child(python(ECHO)) as child:
        owner = os.getpid()
        monkeypatch.setattr(process.os, "getpid", lambda: owner + 1)
        child.kill()
        child.end()
        assert sent == []
        monkeypatch.undo()
        monkeypatch.setattr(
            process.os, "killpg", lambda group, number: (sent.append((group, number)), real(group, number))
        )
        child.kill()
        assert child.wait(Deadline.after(30)) == -signal.SIGKILL
        # it has ended, and was not waited for
        child.halt()
        assert [number for _, number in sent] == [signal.SIGKILL, signal.SIGSTOP]
    sent.clear()
    child.kill()
    child.go_on()
    assert sent == []


def test_who_ignores_the_ends_of_its_children_has_their_answers() -> None:
    text = (
        "import signal, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfrom dslc.processes.process import Command, Job\n"
        "with Job(Command((sys.executable, '-c', 'print(1)')), 30) as job:\n    print(job.answer(10))\n"
    )
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("(0, '1\\n')\n", "")


# ---- forks ------------------------------------------------------------------------------------------------------


def test_a_fork_answers_from_what_is_in_memory() -> None:
    known = {"x": object()}

    def answer(send: Callable[[object], None]) -> None:
        send((os.getpid(), id(known["x"])))

    with Fork(answer) as fork:
        assert fork.receive(Deadline.after(30)) == (fork.pid, id(known["x"])) and fork.pid != os.getpid()
        assert fork.wait(Deadline.after(30)) == 0
    with Fork(lambda _: os._exit(3)) as fork, pytest.raises(ProcessFailed, match="exit code 3"):
        fork.receive()


def test_a_fork_is_interrupted_by_itself_and_may_finish(tmp_path: Path) -> None:
    def long(send: Callable[[object], None]) -> None:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            send("begun")
            time.sleep(300)
        except KeyboardInterrupt:
            (tmp_path / "kept").write_text("what was finished")

    with Fork(long) as fork:
        assert fork.receive(Deadline.after(30)) == "begun"
        fork.interrupt(30)
        assert fork.code == 0 and (tmp_path / "kept").exists()


def test_forks_work_in_the_order_of_the_tasks() -> None:
    state = [3]
    assert list(mapped(lambda given, task: given[0] * task, state, range(50), 2, 4)) == [3 * task for task in range(50)]


class Session:
    """Garbage in a circle that may be destroyed by the process alone that made it: by others it would wait for threads for ever."""

    def __init__(self) -> None:
        self.own, self.itself = os.getpid(), self

    def __del__(self) -> None:
        if os.getpid() != self.own:
            os._exit(9)


@pytest.mark.parametrize("by", ["fork", "pool"])
def test_a_fork_destroys_nothing_that_is_older(by: str) -> None:
    # what other tests left is not looked at: it is much
    gc.freeze()
    gc.disable()
    try:
        Session()
        if by == "fork":
            with Fork(lambda answer: answer(gc.collect() >= 0)) as fork:
                assert fork.receive()
        else:
            assert list(mapped(lambda _, task: gc.collect() >= 0 and task, None, [1, 2], 1)) == [1, 2]
    finally:
        gc.enable()
        gc.unfreeze()
