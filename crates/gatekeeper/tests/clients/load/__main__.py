"""wrk and h2load through the gatekeeper: `python tests/clients/load`, environment as in ../site_under_test.py."""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "drivers" / "harness")]

import checks  # noqa: E402
import site_under_test as site  # noqa: E402
from checks import check  # noqa: E402


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def wrk(url):
    """Neither errors of the sockets nor statuses other than 2xx and 3xx."""
    said = run("wrk", "--threads", "1", "--connections", "50", "--duration", "2s", "--timeout", "60s", url)
    assert int(re.search(r"(\d+) requests in", said)[1]) > 0, said
    assert "Socket errors" not in said and "Non-2xx" not in said, said


def h2load(*arguments, count=3000):
    said = run("h2load", "--requests", str(count), "--threads", "1", *arguments)
    done = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", said)
    assert done and done.groups() == (str(count), "0", "0", "0"), said
    assert f"status codes: {count} 2xx" in said, said


@check("wrk, in the clear")
def wrk_plain():
    wrk(f"{site.URL}/hello")
    wrk(f"{site.URL}/bytes/100000")


@check("wrk, with TLS")
def wrk_encrypted():
    wrk(f"{site.TLS_URL}/hello")


@check("h2load with HTTP/1.1")
def h2load_of_http1():
    h2load("--h1", "--clients", "50", f"{site.URL}/hello")
    h2load("--h1", "--clients", "50", f"{site.TLS_URL}/hello")


@check("h2load with HTTP/2, many streams on each connection")
def h2load_of_http2():
    for url in (site.URL, site.TLS_URL):
        h2load("--clients", "10", "--max-concurrent-streams", "20", f"{url}/hello")
        h2load("--clients", "4", "--max-concurrent-streams", "50", f"{url}/bytes/100000", count=1000)


@check("h2load sends bodies")
def h2load_with_bodies():
    for url in (site.URL, site.TLS_URL):
        h2load("--clients", "10", "--max-concurrent-streams", "10", "--data", __file__, f"{url}/sum", count=500)


if __name__ == "__main__":
    checks.main()
