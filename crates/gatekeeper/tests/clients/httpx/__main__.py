"""httpx, Python's client, through the gatekeeper: `python tests/clients/httpx`, environment as in ../site_under_test.py."""

import asyncio
import hashlib
import os
import ssl
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Not the directory of this program, whose name is the library's.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() not in (HERE, HERE.parent)]

import httpx  # noqa: E402

sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "drivers" / "harness")]

import checks  # noqa: E402
import site_under_test as site  # noqa: E402
from checks import check  # noqa: E402

TRUSTING = ssl.create_default_context(cafile=site.CA)
# The address, and whether HTTP/2 is spoken: over TLS by ALPN, in the clear by prior knowledge.
WAYS = [
    (site.URL, {"http1": True, "http2": False}),
    (site.URL, {"http1": False, "http2": True}),
    (site.TLS_URL, {"http1": True, "http2": False}),
    (site.TLS_URL, {"http1": True, "http2": True}),
]


def clients(**more):
    for url, versions in WAYS:
        with httpx.Client(base_url=url, verify=TRUSTING, timeout=60, **versions, **more) as client:
            yield client, "HTTP/2" if versions["http2"] else "HTTP/1.1"


@check("a session asks many times, in the version that it speaks")
def sessions():
    for client, version in clients():
        for _ in range(50):
            response = client.get("/hello")
            assert (response.status_code, response.text) == (200, "hello\n"), response
            assert response.http_version == version, response.http_version


@check("bodies with and without a length are sent and come back")
def bodies():
    content = os.urandom(2_000_000)
    pieces = [content[start : start + 50_000] for start in range(0, len(content), 50_000)]
    for client, _ in clients():
        assert client.post("/echo", content=content).content == content
        assert client.put("/echo", content=iter(pieces)).content == content
        assert client.post("/sum", content=iter(pieces)).text == "2000000\n"


@check("forms, files and queries arrive")
def forms():
    for client, _ in clients():
        said = client.post("/echo", data={"a": "1", "b": "ä"}).text
        assert said == "a=1&b=%C3%A4", said
        said = client.post("/echo", files={"file": ("name.bin", b"\x00\xff" * 1000)}).content
        assert b"\x00\xff" * 1000 in said
        said = client.get("/about", params={"q": "a b/ü?"}).text
        assert said.startswith("GET /about?q=a+b%2F%C3%BC%3F host="), said


@check("HEAD, OPTIONS, DELETE and PATCH are passed on")
def methods():
    for client, _ in clients():
        assert client.head("/bytes/1000").headers["content-length"] == "1000"
        for method in ("OPTIONS", "DELETE", "PATCH"):
            assert client.request(method, "/echo").headers["x-method"] == method


@check("responses without a body end with their head")
def bodiless():
    for client, _ in clients():
        for status in (204, 304, 200, 404, 500):
            response = client.get(f"/status/{status}")
            assert response.status_code == status, response
            assert response.text == ("" if status in (204, 304) else f"{status}\n")


@check("redirections, compression, ranges and early hints")
def others():
    for client, _ in clients(follow_redirects=True):
        assert client.get("/redirect").text == "hello\n"
        response = client.get("/gzip", headers={"accept-encoding": "gzip"})
        assert (response.text, response.headers["content-encoding"]) == ("compressed\n", "gzip")
        response = client.get("/bytes/100", headers={"range": "bytes=16-19"})
        assert (response.status_code, response.text) == (206, "0123")
        assert client.get("/hints").text == "hinted\n"


@check("a stream is read as it comes")
def streams():
    for client, _ in clients():
        with client.stream("GET", "/pieces/200") as response:
            assert list(response.iter_lines()) == [f"piece {number}" for number in range(200)]
        with client.stream("GET", "/events") as response:
            assert [line for line in response.iter_lines() if line] == ["data: 0", "data: 1", "data: 2"]


@check("a client that leaves a response halfway can go on")
def halves():
    for client, version in clients():
        if version == "HTTP/2":
            # httpcore doesn't reset the stream, so that its connection has no window left.
            continue
        for _ in range(10):
            with client.stream("GET", "/bytes/20000000") as response:
                next(response.iter_raw())
        assert client.get("/hello").text == "hello\n"


@check("a response that breaks off is an error, and the next is well")
def cut():
    for client, _ in clients():
        try:
            client.get("/cut")
        except httpx.RemoteProtocolError:
            pass
        else:
            raise AssertionError("half a response was taken for a whole one")
        assert client.get("/hello").text == "hello\n"


@check("many sessions at the same time are answered, each with its own")
async def together():
    async def ask(client, number):
        body = str(number).encode() * 1_000
        response = await client.post("/sum", content=body)
        assert response.text == f"{len(body)}\n", response
        response = await client.get(f"/part/{number}")
        assert response.text == f"part {number}\n", response

    for url, versions in WAYS:
        async with httpx.AsyncClient(base_url=url, verify=TRUSTING, timeout=60, **versions) as client:
            await asyncio.gather(*(ask(client, number) for number in range(200)))


@check("a download has the checksum of what is there")
def checksums():
    wanted = hashlib.sha256(b"0123456789abcdef" * 1_250_000).hexdigest()
    for client, _ in clients():
        hashed = hashlib.sha256()
        with client.stream("GET", "/bytes/20000000") as response:
            for piece in response.iter_bytes():
                hashed.update(piece)
        assert hashed.hexdigest() == wanted


if __name__ == "__main__":
    checks.main()
