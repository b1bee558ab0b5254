"""Chromium without a window, through the gatekeeper: `python tests/clients/browser`, environment as in ../site_under_test.py.

It loads a page with a style, a script and two dozen images; the script asks for more, sends a body, reads a stream of
events, speaks through a WebSocket, and reports what came.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "drivers" / "harness")]

import checks  # noqa: E402
import site_under_test as site  # noqa: E402
from checks import check, until  # noqa: E402

NAMES = ("chromium-headless-shell", "chromium", "google-chrome")


def load(url):
    """The report of a page that was loaded at this address."""
    before = len(site.origin("/reports").splitlines())
    program = next(filter(None, map(shutil.which, NAMES)), None)
    assert program, "there is no Chromium: `make setup` installs it"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, tempfile.TemporaryFile() as log:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        # The tests' authority is no one that a browser knows.
        options += ["--ignore-certificate-errors", "--remote-debugging-port=0", f"--user-data-dir={profile}"]
        browser = subprocess.Popen([program, *options, f"{url}/page"], stdout=log, stderr=log)
        try:
            reports = until(lambda: site.origin("/reports").splitlines()[before:], "the page reports")
        except AssertionError:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-4000:])
            raise
        finally:
            browser.terminate()
            browser.wait()
    return json.loads(reports[0])


def expected(protocol):
    """What a report has to say."""
    told = {"parts": 24, "posted": 200_000, "events": 3, "socket": "5,70000 1000"}
    return told | {"images": 24, "styled": "rgb(1, 2, 3)", "protocol": protocol}


@check("a page with subresources, a stream of events and a WebSocket")
def plain():
    report = load(site.URL)
    assert report == expected("http/1.1"), report


@check("the same with TLS, over HTTP/2")
def encrypted():
    report = load(site.TLS_URL)
    assert report == expected("h2"), report


if __name__ == "__main__":
    checks.main()
