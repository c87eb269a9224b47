"""A real server of S3's protocol over HTTP, and a proxy before it that counts and fails.

`with running() as url:` starts one on 127.0.0.1 in a process of its own and stops it at the end;
`credentials(url)` are the environment variables that make every client use it. `Proxy(url)` stands
before it: `proxy.rule` decides for each request what goes wrong, `proxy.log` has all of them.

As a script it is the server: it prints its port and ends with its standard input.
"""

import contextlib
import http.client
import os
import random
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.parse
from typing import NamedTuple

BUCKET = "bucket"


def credentials(url):
    """Environment variables for a server without real credentials, and none of the user's own."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "not-a-secret",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextlib.contextmanager
def running():
    """The URL of a server with an empty bucket, with conditional writes, ranges and pages."""
    process = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        make_bucket(url)
        yield url
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(30)


@contextlib.contextmanager
def rclone(folder):
    """The URL of rclone's server over a local folder: it ignores conditions on writes."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    (folder / BUCKET).mkdir(parents=True)
    process = subprocess.Popen(
        ["rclone", "serve", "s3", str(folder), "--addr", f"127.0.0.1:{port}",
         "--config", os.devnull, "--vfs-cache-mode", "off", "--dir-cache-time", "0"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def make_bucket(url, name=BUCKET):
    """Makes a bucket by the plainest of requests."""
    at = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname, at.port, timeout=30)
    connection.request("PUT", f"/{name}")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200, answer.status


class Request(NamedTuple):
    """What a proxy saw of a request and what it did: `op` is GET, PUT, HEAD, DELETE or LIST."""

    n: int
    op: str
    key: str
    query: str
    headers: dict
    received: int


class Done(NamedTuple):
    """A request, the fault it met ("" for none), its answer's status and the bytes of its body."""

    request: Request
    fault: str
    status: int
    sent: int


FAULTS = ("slow_down", "error", "cut_request", "cut_before_answer", "cut_answer", "late")


class Proxy:
    """An HTTP proxy before one server. `rule(request)` names the fault that a request meets.

    `slow_down` and `error` answer 503 and 500 without the server; `cut_request` closes before the
    server hears of it; `cut_before_answer` after it did its work; `cut_answer` in the middle of the
    answer's body; `late` answers after a moment. A rule may also give (status, code), an error that
    is answered without the server, or a function from its answer's (status, headers, body) to
    another.
    """

    def __init__(self, url, rule=None):
        self.rule = rule
        self.log = []
        self._at = urllib.parse.urlsplit(url)
        self._lock = threading.Lock()
        self._n = 0
        proxy = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                with contextlib.suppress(OSError, ValueError):
                    while proxy._one(self.rfile, self.wfile):
                        pass

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.daemon = True
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def counts(self):
        """Requests by op."""
        found = {}
        for done in list(self.log):
            found[done.request.op] = found.get(done.request.op, 0) + 1
        return found

    def sent(self, op="GET"):
        """Bytes of answers to the requests of one kind."""
        return sum(d.sent for d in list(self.log) if d.request.op == op)

    def _one(self, rfile, wfile):
        line = rfile.readline(65537)
        if not line:
            return False
        method, target, _ = line.decode("latin-1").split(" ", 2)
        headers = {}
        while (row := rfile.readline(65537).decode("latin-1").rstrip("\r\n")) != "":
            name, _, value = row.partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue":
            wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            wfile.flush()
        body = _body(rfile, headers)
        path, _, query = target.partition("?")
        key = urllib.parse.unquote(path).lstrip("/").partition("/")[2]
        op = "LIST" if method == "GET" and "list-type=2" in query else method
        with self._lock:
            request = Request(self._n, op, key, query, headers, len(body))
            self._n += 1
            fault = (self.rule(request) if self.rule else None) or ""
        change, name = (fault, "changed") if callable(fault) else (None, fault)
        name = {"slow_down": (503, "SlowDown"), "error": (500, "InternalError")}.get(name, name)
        if name == "cut_request":
            return self._done(request, name, 0, 0)
        if isinstance(name, tuple):
            status, code = name
            text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>x</Message></Error>"
            answer = status, [("Content-Type", "application/xml")], text.encode()
            name = fault if isinstance(fault, str) else code
        else:
            answer = self._forward(method, target, headers, body)
        if change is not None:
            answer = change(*answer)
        if name == "cut_before_answer":
            return self._done(request, name, answer[0], 0)
        if name == "late":
            time.sleep(0.2)
        status, kept, data = answer
        said = {k.lower(): v for k, v in kept}
        length = said.get("content-length") if method == "HEAD" else None
        head = f"HTTP/1.1 {status} x\r\n"
        head += "".join(
            f"{k}: {v}\r\n"
            for k, v in kept
            if k.lower() not in ("content-length", "connection", "transfer-encoding")
        )
        head += f"Content-Length: {length or len(data)}\r\nConnection: keep-alive\r\n\r\n"
        cut = name == "cut_answer"
        part = data[: len(data) // 2] if cut else data
        # Before the client can go on: a test counts when it has its answer.
        self._done(request, name, status, 0 if method == "HEAD" else len(part))
        wfile.write(head.encode("latin-1") + (b"" if method == "HEAD" else part))
        wfile.flush()
        return not cut

    def _done(self, request, fault, status, sent):
        with self._lock:
            self.log.append(Done(request, fault, status, sent))
        return False

    def _forward(self, method, target, headers, body):
        connection = http.client.HTTPConnection(self._at.hostname, self._at.port, timeout=60)
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if name not in ("connection", "transfer-encoding", "expect", "content-length"):
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


def _body(rfile, headers):
    if headers.get("transfer-encoding", "").lower() == "chunked":
        parts = []
        while size := int(rfile.readline().partition(b";")[0], 16):
            parts.append(rfile.read(size))
            rfile.readline()
        while rfile.readline().strip():
            pass
        return b"".join(parts)
    return rfile.read(int(headers.get("content-length", 0)))


def at_random(rate, seed, kinds=FAULTS):
    """A rule: faults of these kinds for that share of all requests."""
    chance = random.Random(seed)

    def rule(request):
        return chance.choice(kinds) if chance.random() < rate else None

    return rule


def _serve():
    import logging

    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    inner = DomainDispatcherApplication(create_backend_app)
    one_at_a_time = threading.Lock()

    def app(environ, start_response):
        # It looks whether an object is there and then writes it: a real store does both at once.
        with one_at_a_time:
            return [b"".join(inner(environ, start_response))]

    server = make_server("127.0.0.1", 0, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
