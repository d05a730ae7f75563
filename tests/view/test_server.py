"""The page's server answers its own page and whoever has the printed address, and nobody else."""

import asyncio
import json

import pytest
from viewing import served

from flock.edge.callers import PLACES
from flock.view import server as module
from looping import looped

STATUS = b'{"node": "n1", "ready": true}'


@looped
async def test_who_has_the_address_gets_the_page_with_a_strict_policy() -> None:
    async with served() as view:
        status, headers, body = await view.get("")
        assert status == 200 and b"<html" in body
        assert headers["content-type"].startswith("text/html")
        assert headers["content-security-policy"] == (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        assert headers["referrer-policy"] == "no-referrer" and headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
        assert len(view.root.strip("/")) >= 32


@looped
async def test_without_the_key_everything_is_forbidden() -> None:
    async with served() as view:
        wrong = "/" + "x" * len(view.server.key) + "/"
        almost = view.root[:-2] + ("y" if view.root[-2] != "y" else "z") + "/"
        for path in (
            "/",
            "/index.html",
            "/api/stream",
            wrong,
            almost,
            wrong + "api/stream",
            "//",
            "/é/",
            view.root[:-1],
        ):
            status, headers, body = await view.get(path)
            assert status == 403, path
            assert view.server.key.encode() not in body and "content-security-policy" in headers


@looped
async def test_a_name_that_leads_here_without_being_ours_is_refused() -> None:
    async with served() as view:
        port = view.host.rpartition(":")[2]
        for host in (
            "evil.example",
            f"evil.example:{port}",
            "127.0.0.1",
            f"127.0.0.1:{int(port) ^ 1}",
            f"0.0.0.0:{port}",
        ):
            assert (await view.get("", host=host))[0] == 403, host
        for host in (f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
            assert (await view.get("", host=host))[0] == 200, host
        assert (await view.send(f"GET {view.root} HTTP/1.0\r\n\r\n"))[0] == 403
        twice = f"GET {view.root} HTTP/1.1\r\nHost: {view.host}\r\nHost: evil.example\r\n\r\n"
        assert (await view.send(twice))[0] == 403


@looped
async def test_other_pages_are_refused() -> None:
    async with served() as view:
        for origin in ("https://evil.example", "null", f"https://{view.host}", "http://127.0.0.1:1"):
            assert (await view.get("api/check?node=n1", Origin=origin))[0] == 403, origin
        assert (await view.get("", Origin=f"http://{view.host}"))[0] == 200


@looped
async def test_nothing_but_get_is_answered() -> None:
    async with served() as view:
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD", "get", "X"):
            assert (await view.get("", method=method))[0] == 405, method
            assert (await view.get("/", method=method))[0] == 403, method


@looped
async def test_only_files_of_the_page_are_served() -> None:
    async with served() as view:
        for path in ("../server.py", "..%2fserver.py", "lib/../../server.py", "/etc/passwd", "lib", "nothing.js"):
            target = path if path[0] != "/" else f"{view.root}{path}"
            assert (await view.get(target))[0] == 404, path


@looped
async def test_a_reload_gets_everything_again() -> None:
    async with served() as view:
        view.picture.status("n1", STATUS, at=10)
        view.picture.happened("n1", 1, {"kind": "NodeReady"})
        for _ in range(2):
            async with view.page() as page:
                kind, hello = await page.event()
                assert kind == "hello" and hello["origin"] == "played" and hello["live"] is True
                assert (await page.until("node"))["status"] == json.loads(STATUS)
                assert (await page.until("happenings"))[0]["number"] == 1


@looped
async def test_a_page_hears_of_changes() -> None:
    async with served() as view, view.page() as page, view.page() as other:
        view.picture.status("n1", STATUS, at=10)
        assert (await page.until("node"))["reached"] is True
        view.picture.lost("n1", "connection refused")
        assert (await page.until("node"))["problem"] == "connection refused"
        assert (await other.until("node"))["name"] == "n1"


@looped
async def test_a_page_that_does_not_read_is_dropped_and_others_are_not_kept_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.3)
    async with served() as view, view.page() as page, view.page() as stuck:
        for number in range(400):  # more than sockets hold
            view.picture.status(f"n{number}", b'{"long": "%s"}' % (b"x" * 100_000), at=10)
        for _ in range(400):
            await page.until("node")
        for _ in range(200):
            if view.server._readers > 1:
                await asyncio.sleep(0.05)
        view.picture.happened("n1", 1, {"kind": "NodeReady"})
        assert await page.until("happenings")
        with pytest.raises(asyncio.IncompleteReadError):
            while True:
                await stuck.event()


@looped
async def test_one_page_too_many_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READERS", 1)
    async with served() as view, view.page() as page:
        await page.event()
        assert (await view.get("api/stream"))[0] == 503


@looped
async def test_what_only_a_socket_answers_is_asked_of_the_source() -> None:
    async with served() as view:
        for name in ("n1", "mute"):
            view.picture.expect(name)
        asked = "source=shop/web-0&destination=2001:db8::1&port=80/TCP"
        status, headers, body = await view.get(f"api/why?node=n1&{asked}")
        assert (status, headers["content-type"]) == (200, "application/json")
        assert json.loads(body) == [{"verdict": "allow"}]
        assert (await view.get("api/check?node=n1"))[0] == 200
        assert view.source.asked == [("n1", "policy", "why", "shop/web-0", "2001:db8::1", "80/TCP"), ("n1", "check")]
        status, _, body = await view.get("api/check?node=mute")
        assert (status, json.loads(body)) == (502, {"error": "nobody answers there"})
        for wrong in ("api/check", "api/check?node=n9", "api/why?node=n1&source=a", "api/check?node=n1&node=mute"):
            status, _, body = await view.get(wrong)
            assert status == 400 and json.loads(body)["error"], wrong
        await view.get("api/look?node=n1&node=n2")
        assert view.source.looked == ("n1", "n2")


@looped
async def test_a_request_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    async with served() as view:
        for begun in ("GET / HTTP/1.1\r\nHost:", "GET /" + "x" * 40_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(view.host.rpartition(":")[2]))
            writer.write(begun.encode())
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)
            writer.close()


@looped
async def test_a_crowd_that_says_nothing_keeps_nobody_from_the_page() -> None:
    async with served() as view:
        host, _, port = view.host.rpartition(":")
        crowd = [await asyncio.open_connection(host, int(port)) for _ in range(PLACES + 50)]
        try:
            assert (await view.get(""))[0] == 200
            half = [await asyncio.open_connection(host, int(port)) for _ in range(PLACES + 50)]
            crowd += half
            for _, writer in half:
                writer.write(b"GET /wrong-key/ HTTP/1.1\r\nHost: ")
            assert (await view.get(""))[0] == 200
        finally:
            for _, writer in crowd:
                writer.transport.abort()


@looped
async def test_whatever_is_sent_the_next_one_gets_the_page() -> None:
    async with served() as view:
        host, _, port = view.host.rpartition(":")
        good = f"GET {view.root}".encode()
        for sent in (
            b"\r\n\r\n",
            b"\x00\xff\xfe" * 100 + b"\r\n\r\n",
            good,
            good + b" HTTP/1.1\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
            good + b"api/why?" + b"a=b&" * 3000 + b" HTTP/1.1\r\nHost: " + view.host.encode() + b"\r\n\r\n",
            good + b"api/why?node=%ff%00&source=%ed%a0%80 HTTP/1.1\r\nHost: " + view.host.encode() + b"\r\n\r\n",
            good + b"../../etc/passwd HTTP/1.1\r\nHost: " + view.host.encode() + b"\r\n\r\n",
            b"GET http://[::1 HTTP/1.1\r\nHost: [\r\n\r\n",
        ):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            writer.write_eof()
            assert (await view.get(""))[0] == 200, sent[:60]
            writer.transport.abort()
