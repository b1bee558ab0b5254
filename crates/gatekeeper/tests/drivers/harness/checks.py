"""The runner that the Python drivers' checks share.

Where to connect comes from libpq's own variables (PGHOST, PGPORT, PGUSER, PGPASSWORD, PGDATABASE; with TLS PGSSLMODE,
PGSSLROOTCERT and PGCHANNELBINDING). Beside them, from the Rust harness (`tests/drivers.rs`):

  GATEKEEPER_PID          the gatekeeper's process; absent when the checks run against PostgreSQL itself
  GATEKEEPER_CONNECTIONS  its budget of server connections
  UPSTREAM_PORT           PostgreSQL itself, to watch what really runs there

A check prints one line. The first that fails ends the run with its traceback; one that hangs is
ended, with every thread's stack, after CHECK_TIMEOUT. Nothing here waits for a time to pass: `until`
polls a condition within a bound.
"""

import faulthandler
import inspect
import os
import sys
import threading
import time
import traceback

# Seconds. A bound that only a hang reaches: the slowest check takes a few seconds.
CHECK_TIMEOUT = int(os.environ.get("CHECK_TIMEOUT", "120"))
POLL_TIMEOUT = 60
POLL_INTERVAL = 0.01

# What the gatekeeper may grow by while 100 MB stream through it.
RSS_GROWTH_MAX = 30 * 1024 * 1024

CONNECTIONS = int(os.environ.get("GATEKEEPER_CONNECTIONS", "4"))
THROUGH_GATE = "GATEKEEPER_PID" in os.environ

_checks = []


def check(title):
    """Registers a function, plain or async, as a check named by a sentence."""

    def register(function):
        _checks.append((title, function))
        return function

    return register


def upstream():
    """How to reach PostgreSQL itself, where TLS is of no interest, as keyword arguments of psycopg."""
    port = int(os.environ.get("UPSTREAM_PORT", os.environ["PGPORT"]))
    return {"port": port, "sslmode": "disable", "channel_binding": "disable"}


def until(condition, what):
    """Waits until the condition holds, and fails with `what` if it never does."""
    deadline = time.monotonic() + POLL_TIMEOUT
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(POLL_INTERVAL)


def together(count, work):
    """Calls work(0), work(1) and so on at the same time, each in a thread of its own, and fails if one of them does."""
    failures = []

    def attempt(number):
        try:
            work(number)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def gatekeeper_rss():
    """The gatekeeper's resident memory in bytes; None when there is no gatekeeper."""
    if not THROUGH_GATE:
        return None
    with open(f"/proc/{os.environ['GATEKEEPER_PID']}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise AssertionError("the gatekeeper's status has no VmRSS")


class FlatMemory:
    """Asserts that the gatekeeper's memory stays flat; `sample` is called while the data flow."""

    def __init__(self):
        self.before = self.peak = gatekeeper_rss()

    def sample(self):
        if self.before is not None:
            self.peak = max(self.peak, gatekeeper_rss())

    def assert_flat(self):
        self.sample()
        if self.before is not None:
            grown = self.peak - self.before
            assert grown < RSS_GROWTH_MAX, f"the gatekeeper grew by {grown} bytes from {self.before}"


def main():
    """Runs every check in order, or those whose title contains CHECK_ONLY; CHECK_ALL=1 goes on after a failure."""
    only = os.environ.get("CHECK_ONLY", "")
    failed = 0
    for title, function in _checks:
        if only not in title:
            continue
        faulthandler.dump_traceback_later(CHECK_TIMEOUT, exit=True)
        try:
            if inspect.iscoroutinefunction(function):
                import asyncio

                asyncio.run(function())
            else:
                function()
        except BaseException:
            print(f"FAILED {title}", flush=True)
            traceback.print_exc()
            sys.stderr.flush()
            failed += 1
            if not os.environ.get("CHECK_ALL"):
                break
        else:
            print(f"ok     {title}", flush=True)
        finally:
            faulthandler.cancel_dump_traceback_later()
    sys.stdout.flush()
    # Threads of a failed check may still wait for an answer: don't wait for them.
    os._exit(1 if failed else 0)
