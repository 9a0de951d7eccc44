"""The program and the child that does its work live and die together."""

import os
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import signal, sys, time
for number in (signal.SIGINT, signal.SIGHUP):  # whoever runs the tests in the background has these ignored
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
from stager.supervisor import supervise
def give_up(error):
    print("gave up:", error, flush=True)
    sys.exit(9)
supervise(give_up)
import os
{child}
print(os.getpid(), flush=True)
time.sleep(60)
"""


def start(child="pass"):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(child=child)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    return process, int(process.stdout.readline())


def finish(process):
    out, _ = process.communicate(timeout=20)
    return process.returncode, out


def dies(pid):
    """Whether a process of which nobody here is the parent ends."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_is_handed_on_and_what_ends_the_child_ends_the_program(number):
    process, child = start()
    os.kill(process.pid, number)
    code, _ = finish(process)
    assert code in {-number, 1, 130}  # Python makes an exception of SIGINT
    assert dies(child)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_child_that_is_killed_ends_the_program_in_the_same_way(number):
    process, child = start()
    os.kill(child, number)
    assert finish(process)[0] == -number


def test_a_program_that_is_killed_takes_its_child_with_it():
    process, child = start()
    process.kill()
    process.communicate(timeout=20)  # the child has the pipe as well
    assert dies(child)


def test_the_exit_code_is_that_of_the_child():
    program = "from stager.supervisor import supervise; supervise(None); raise SystemExit(65)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 65


def test_what_was_written_before_is_written_once():
    program = "import sys; sys.stdout.write('once '); from stager.supervisor import supervise; supervise(None)"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"once "


def test_a_child_that_does_not_hear_the_stop_is_given_up():
    process, child = start("signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    os.kill(process.pid, signal.SIGTERM)
    code, out = finish(process)
    assert code == 9
    assert "gave up: stopped by SIGTERM" in out
    assert dies(child)


def test_a_command_that_another_program_calls_does_not_fork_it():
    program = (
        "import os, threading; from stager.supervisor import supervise\n"
        "done = threading.Event(); threading.Thread(target=done.wait).start()\n"
        "before = os.getpid(); supervise(None); done.set(); print(os.getpid() == before, flush=True)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == "True\n"
