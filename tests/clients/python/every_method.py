"""Every method of greenstalk against the server at $BEANSTALKD_PORT."""

import os
import signal
import sys
import time

import greenstalk

ADDRESS = ("127.0.0.1", int(os.environ["BEANSTALKD_PORT"]))
SERVER = int(os.environ["BEANSTALKD_PID"])
called = set()


def recorded(name, method):
    def call(*args, **kwargs):
        called.add(name)
        return method(*args, **kwargs)

    return call


METHODS = [name for name in vars(greenstalk.Client) if not name.startswith("_")]
for name in METHODS:
    setattr(greenstalk.Client, name, recorded(name, getattr(greenstalk.Client, name)))


def refused(error, method, *args, **kwargs):
    try:
        result = method(*args, **kwargs)
    except error:
        return
    raise AssertionError(f"{error.__name__} expected, but got {result!r}")


def producer_and_tubes(client):
    assert client.using() == "default" and client.watching() == ["default"]
    client.use("work")
    assert client.using() == "work"
    assert client.watch("work") == 2 and client.watch("work") == 2
    assert client.ignore("default") == 1
    refused(greenstalk.NotIgnoredError, client.ignore, "work")
    assert client.watching() == ["work"]
    assert client.tubes() == ["default", "work"]


def life_of_jobs(client):
    first = client.put("first", priority=10, ttr=100)
    assert first == 1
    assert client.put("second", priority=5) == 2
    assert client.peek(first).body == "first"
    assert client.peek_ready().id == 2
    second = client.reserve(timeout=0)
    assert (second.id, second.body) == (2, "second")
    client.touch(second)
    client.release(second, priority=20, delay=0)
    job = client.reserve()
    assert job.id == first
    client.bury(job, priority=7)
    assert client.peek_buried().id == first
    stats = client.stats_job(job)
    assert stats["state"] == "buried" and stats["pri"] == 7 and stats["buries"] == 1
    assert stats["tube"] == "work" and stats["ttr"] == 100
    client.kick_job(job)
    job = client.reserve_job(first)
    assert job.body == "first"
    refused(greenstalk.NotFoundError, client.reserve_job, first)
    client.release(job, delay=3600)
    assert client.peek_delayed().id == first
    assert client.kick(10) == 1
    client.delete(job)
    client.delete(2)
    for gone in (client.delete, client.peek, client.stats_job, client.kick_job):
        refused(greenstalk.NotFoundError, gone, first)
    refused(greenstalk.NotFoundError, client.peek_ready)
    refused(greenstalk.TimedOutError, client.reserve, timeout=0)


def stats(client):
    client.put("x", delay=60)
    tube = client.stats_tube("work")
    assert tube["name"] == "work" and tube["current-jobs-delayed"] == 1 and tube["total-jobs"] == 3
    client.pause_tube("work", 60)
    assert client.stats_tube("work")["pause"] == 60
    client.pause_tube("work", 0)
    refused(greenstalk.NotFoundError, client.stats_tube, "none")
    refused(greenstalk.NotFoundError, client.pause_tube, "none", 1)
    server = client.stats()
    assert server["current-jobs-delayed"] == 1 and server["total-jobs"] == 3
    assert server["draining"] in (False, "false") and server["max-job-size"] == 65535
    assert client.kick(1) == 1
    client.delete(client.reserve(timeout=0))


def refusals(client):
    refused(greenstalk.JobTooBigError, client.put, "x" * 65536)
    refused(greenstalk.BadFormatError, client.use, "-tube")
    client.put("due soon", ttr=1)
    try:
        # A job whose time has ended before the next reserve is there again.
        for _ in range(10):
            client.reserve(timeout=10)
    except greenstalk.DeadlineSoonError:
        return
    raise AssertionError("no reserve was refused because the time of a job ends soon")


def drain(client):
    os.kill(SERVER, signal.SIGUSR1)
    while client.stats()["draining"] in (False, "false"):
        time.sleep(0.001)
    refused(greenstalk.DrainingError, client.put, "too late")
    os.kill(SERVER, signal.SIGUSR2)
    while client.stats()["draining"] not in (False, "false"):
        time.sleep(0.001)
    client.put("again")


with greenstalk.Client(ADDRESS) as client:
    producer_and_tubes(client)
    life_of_jobs(client)
    stats(client)
    refusals(client)
    drain(client)
with greenstalk.Client(ADDRESS, encoding=None, use="bytes", watch=["bytes", "more"]) as client:
    client.put(bytes(range(256)) * 200)
    assert client.reserve(timeout=0).body == bytes(range(256)) * 200
missed = set(METHODS) - called
assert not missed, f"never called: {missed}"
print(f"clients: greenstalk's {len(METHODS)} methods: good")
sys.exit(0)
