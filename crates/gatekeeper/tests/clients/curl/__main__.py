"""curl, the program, through the gatekeeper: `python tests/clients/curl`, environment as in ../site_under_test.py."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "drivers" / "harness")]

import checks  # noqa: E402
import site_under_test as site  # noqa: E402
from checks import check  # noqa: E402

PLAIN = ("--http1.1", site.URL)
PRIOR = ("--http2-prior-knowledge", site.URL)
ALPN = ("--http2", site.TLS_URL)
OVER_TLS = ("--http1.1", site.TLS_URL)
# By prior knowledge, curl 7.88 fails at the second request of a connection, whatever serves it.
KEPT = (PLAIN, OVER_TLS, ALPN)
ALL = {"1.1": PLAIN, "1.1 over TLS": OVER_TLS, "2 by prior knowledge": PRIOR, "2 by ALPN": ALPN}


def curl(*arguments, fails_with=(0,)):
    """What it prints; verbose lines go to the end of a failure's message."""
    command = ["curl", "--silent", "--show-error", "--cacert", site.CA, "--max-time", "60", *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    told = f"{command}: {done.returncode}\n{done.stderr.decode()}"
    assert done.returncode in fails_with, told
    return done.stdout


def each(run):
    """Runs with each version of HTTP."""
    for name, (version, url) in ALL.items():
        try:
            run(version, url)
        except AssertionError as failure:
            raise AssertionError(f"HTTP {name}: {failure}") from failure


def file_of(size):
    file = tempfile.NamedTemporaryFile()
    file.write(os.urandom(size))
    file.flush()
    return file


@check("a page comes in the version of HTTP that was asked for")
def versions():
    for name, (version, url) in ALL.items():
        said = curl(version, "--write-out", "%{http_version} %{http_code}", f"{url}/hello").decode()
        assert said == f"hello\n{name.split()[0]} 200", said


@check("a connection serves many requests")
def kept():
    def run(version, url):
        urls = [f"{url}/hello" for _ in range(50)]
        said = curl(version, "--write-out", "%{num_connects} ", *urls).decode()
        assert said.count("hello") == 50 and said.count("1 ") == 1, said

    for version, url in KEPT:
        run(version, url)


@check("requests at the same time are answered, each with its own")
def parallel():
    def run(version, url):
        said = curl(version, "--parallel", "--parallel-max", "20", f"{url}/part/[1-200]").decode()
        assert sorted(said.splitlines()) == sorted(f"part {number}" for number in range(1, 201)), said

    for version, url in KEPT:
        run(version, url)


@check("HEAD has the head of GET and nothing else")
def head():
    def run(version, url):
        said = curl(version, "--head", f"{url}/bytes/12345").decode().lower()
        assert "content-length: 12345\r\n" in said and 'etag: "12345"' in said, said

    each(run)


@check("responses without a body end with their head")
def bodiless():
    def run(version, url):
        for status in (204, 304):
            said = curl(version, "--write-out", "%{http_code}", f"{url}/status/{status}").decode()
            assert said == str(status), said

    each(run)


@check("an upload waits to be asked for, and arrives whole")
def expect():
    with file_of(3_000_000) as file:
        content = Path(file.name).read_bytes()

        def run(version, url):
            upload = ["--data-binary", f"@{file.name}"]
            if version == "--http1.1":
                # With HTTP/2 nobody says 100 to it through the gate, and it goes on after a second.
                upload += ["--expect100-timeout", "30"]
            assert curl(version, "-H", "Expect: 100-continue", *upload, f"{url}/echo") == content

        each(run)
        # It really asks, and hears 100 before it sends.
        done = curl("--http1.1", "--include", "-H", "Expect: 100-continue", "--data", "abc", f"{site.URL}/echo")
        assert done.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), done


@check("an upload without a length arrives whole")
def chunked():
    with file_of(3_000_000) as file:
        content = Path(file.name).read_bytes()

        def run(version, url):
            with open(file.name, "rb") as source:
                command = ["curl", "--silent", "--cacert", site.CA, version, "--upload-file", "-", f"{url}/echo"]
                done = subprocess.run(command, stdin=source, capture_output=True, check=True)
            assert done.stdout == content, len(done.stdout)

        each(run)


@check("trailers follow a response")
def trailers():
    # Of HTTP/2 they come in any case, of HTTP/1.1 if the client says that it takes them.
    for version, url in (PLAIN, OVER_TLS, PRIOR, ALPN):
        said = curl(version, "--include", "-H", "TE: trailers", "-H", "Connection: TE", "--data", "abc", f"{url}/sum")
        assert b"x-sum: ba7816bf" in said.lower(), said


@check("early hints don't disturb the response behind them")
def hints():
    def run(version, url):
        said = curl(version, "--write-out", "%{http_code}", f"{url}/hints").decode()
        assert said.endswith("hinted\n200"), said

    each(run)
    # Over HTTP/1.1 on both sides they come before it.
    said = curl("--http1.1", "--include", f"{site.URL}/hints")
    first, second, last, _ = said.lower().split(b"\r\n\r\n")
    for hint in (first, second):
        assert hint.startswith(b"http/1.1 103 early hints\r\n") and b"link: </part/1>; rel=preload" in hint, said
    assert last.startswith(b"http/1.1 200 ok\r\n"), said


@check("a redirection is followed")
def redirection():
    for version, url in KEPT:
        expect_equal(curl(version, "--location", f"{url}/redirect"), b"hello\n")


@check("a part of a resource, and what has not changed")
def ranges():
    def run(version, url):
        expect_equal(curl(version, "--range", "16-19,", f"{url}/bytes/100"), b"0123")
        said = curl(version, "-H", 'If-None-Match: "100"', "--write-out", "%{http_code}", f"{url}/bytes/100")
        expect_equal(said, b"304")

    each(run)


@check("a compressed response passes as it is")
def compressed():
    each(lambda version, url: expect_equal(curl(version, "--compressed", f"{url}/gzip"), b"compressed\n"))


@check("a large response comes whole")
def large():
    def run(version, url):
        assert len(curl(version, f"{url}/bytes/20000000")) == 20_000_000

    each(run)


@check("pieces without a length come whole, and of HTTP/1.0 too")
def pieces():
    wanted = "".join(f"piece {number}\n" for number in range(300)).encode()
    each(lambda version, url: expect_equal(curl(version, f"{url}/pieces/300"), wanted))
    expect_equal(curl("--http1.0", f"{site.URL}/pieces/300"), wanted)


@check("a response that breaks off breaks off, and the next is well")
def cut():
    for version, url in ALL.values():
        # 18: the transfer ended before its end; 92: the stream was reset; 52: before the first byte of the response.
        curl(version, f"{url}/cut", fails_with=(18, 52) if version == "--http1.1" else (92,))
    each(lambda version, url: expect_equal(curl(version, f"{url}/hello"), b"hello\n"))


@check("an upgrade to HTTP/2 in the clear may be asked for")
def upgrade():
    expect_equal(curl("--http2", f"{site.URL}/hello"), b"hello\n")
    expect_equal(curl("--http2", "--data", "abc", f"{site.URL}/echo"), b"abc")


def expect_equal(got, wanted):
    assert got == wanted, (got[:200], wanted[:200])


if __name__ == "__main__":
    checks.main()
