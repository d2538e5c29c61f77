"""A server with a page and an API for the tests beside this file, a client of its protocol, and a client of its API."""

import contextlib
import http.client
import json
import os
import re
import socket
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import with_server  # noqa: E402

SERVER = os.environ.get("BEANSTALKD", os.path.join(ROOT, "target/debug/beanstalkd"))
PATIENCE_S = 60


class Client:
    """A client of the protocol."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.replies = self.socket.makefile("rb")

    def ask(self, line):
        """The first line of the reply."""
        self.socket.sendall(line.encode() + b"\r\n")
        return self.replies.readline().decode().strip()

    def put(self, tube, body, priority=0, delay=0, ttr=600, tags=""):
        """Puts a job, with tags separated by spaces, and returns its id."""
        data = body if isinstance(body, bytes) else body.encode()
        self.ask(f"use {tube}")
        line = f"put {priority} {delay} {ttr} {len(data)} {tags}".strip()
        self.socket.sendall(b"%s\r\n%s\r\n" % (line.encode(), data))
        return int(self.replies.readline().split()[1])

    def let_die(self, tube, count=1):
        """Puts jobs into a tube whose rule lets none fail, lets them fail, and returns their ids."""
        jobs = [self.put(tube, f"dead {number}") for number in range(count)]
        for job in jobs:
            assert self.reserve_job(job) and self.ask(f"release {job} 0 0") == "RELEASED"
        return jobs

    def reserve_job(self, job):
        words = self.ask(f"reserve-job {job}").split()
        return words[0] == "RESERVED" and bool(self.replies.read(int(words[2]) + 2))

    def put_many(self, tube, count, body="x"):
        """Puts many jobs, a thousand in each write."""
        self.ask(f"use {tube}")
        line = f"put 0 0 600 {len(body)}\r\n{body}\r\n".encode()
        for start in range(0, count, 1000):
            number = min(1000, count - start)
            self.socket.sendall(line * number)
            for _ in range(number):
                assert self.replies.readline().startswith(b"INSERTED")

    def reserve(self, tube):
        """Reserves a job of the tube, and returns its id."""
        self.ask(f"watch {tube}")
        self.ask("ignore default")
        words = self.ask("reserve-with-timeout 0").split()
        assert words[0] == "RESERVED", words
        self.replies.read(int(words[2]) + 2)
        return int(words[1])

    def bury(self, tube, count=1):
        """Buries some jobs of the tube."""
        for _ in range(count):
            job = self.reserve(tube)
            assert self.ask(f"bury {job} 7") == "BURIED"

    def stats(self, job):
        """The stats of a job as a dictionary; empty if there is no such job."""
        return self.data(f"stats-job {job}")

    def stats_tube(self, tube):
        """The stats of a tube as a dictionary; empty if there is no such tube."""
        return self.data(f"stats-tube {tube}")

    def data(self, line):
        """The pairs in the reply to the line; empty if the reply has none."""
        words = self.ask(line).split()
        if words[0] != "OK":
            return {}
        text = self.replies.read(int(words[1]) + 2).decode()
        return dict(re.findall(r"^(\S+): \"?(.*?)\"?$", text, re.M))


class Server:
    """A server with --admin on a free port."""

    def __init__(self, *options):
        self.admin = with_server.free_port()
        self.pid, self.port = with_server.start(SERVER, ["--admin", f"127.0.0.1:{self.admin}", *options])

    def client(self):
        return Client(self.port)

    def stop(self):
        assert with_server.stop(self.pid), "the server stops cleanly"

    @property
    def url(self):
        return f"http://127.0.0.1:{self.admin}/"

    def ask(self, method, path, body=None, headers=None):
        """The status, the headers and the bytes that answer a request."""
        return self.answer(self.send(method, path, body, headers))

    def send(self, method, path, body=None, headers=None):
        """A connection on which the server has the request, or will have it before that of a later connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=PATIENCE_S)
        given = {"X-Beanstalkd-Admin": "1", "Content-Type": "application/json"} if headers is None else headers
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        if isinstance(body, tuple):
            # Sends only a head that announces a body: the server answers, and closes, before the body arrives.
            connection.putrequest(method, path)
            for header in (*given.items(), body):
                connection.putheader(*header)
            connection.endheaders()
        else:
            connection.request(method, path, body=data, headers=given)
        return connection

    @staticmethod
    def answer(connection):
        """The status, the headers and the bytes that answer a request that was sent."""
        with contextlib.closing(connection):
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def get(self, path):
        """The JSON under a path of the API."""
        status, _, data = self.ask("GET", f"/api/v1/{path}")
        assert status == 200, (path, status, data)
        return json.loads(data)

    def post(self, path, body=None):
        """The status and the JSON that answer a change."""
        status, _, data = self.ask("POST", f"/api/v1/{path}", body)
        return status, json.loads(data)

    def finish(self, task):
        """The task when it is over."""
        return self.follow(task, lambda task: task["state"] not in ("running", "stopping"))

    def follow(self, task, until):
        """The task as soon as this is true of it."""
        give_up_at = time.monotonic() + PATIENCE_S
        while not until(task):
            assert time.monotonic() < give_up_at, task
            task = self.get(f"tasks/{task['id']}")
        return task


@contextlib.contextmanager
def server(*options):
    """A server until the block ends."""
    started = Server(*options)
    try:
        yield started
    finally:
        started.stop()


@contextlib.contextmanager
def server_with_dead_tube():
    """A server with a rule for the tubes mail and full, whose jobs die at once. The second takes one job."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as rules:
        for tube, more in (("mail", ""), ("full", "max-jobs = 1")):
            rules.write(f'[[tube]]\nname = "{tube}"\nmax-attempts = 1\ndead-tube = "dead"\n{more}\n')
        rules.flush()
        with server("--tubes", rules.name) as started:
            yield started


def token_file():
    """A file with a token, and the token."""
    token = "0123456789abcdef" * 4
    with tempfile.NamedTemporaryFile("w", suffix=".token", delete=False, encoding="utf-8") as file:
        file.write(token + "\n")
    return file.name, token
