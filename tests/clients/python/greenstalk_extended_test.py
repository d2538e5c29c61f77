"""Each addition of greenstalk_extended.py: plain, then with a token, then with a token in TLS."""

import os
import ssl

import greenstalk
from greenstalk_extended import ExistsError, ExtendedClient, ForbiddenError, UnauthorizedError

TOKEN = os.environ["BEANSTALKD_TOKEN"]
TOKEN_FOR_MAIL = os.environ["BEANSTALKD_TOKEN_FOR_MAIL"]


def address(name):
    return "127.0.0.1", int(os.environ[name])


def refused(error, method, *args, **kwargs):
    try:
        result = method(*args, **kwargs)
    except error as raised:
        return raised
    raise AssertionError(f"{error.__name__} expected, but got {result!r}")


def tags(client):
    first = client.put("a", idp="order-7", exp=3600)
    again = client.put("a", priority=7, idp="order-7")  # more urgent, so the reply has the priority, too
    assert (first.state, again, again.state) == (None, first, "READY")
    refused(ValueError, client.put, "x", idp="a key\r\nwith spaces")
    client.put("one at a time", con="customer-9")
    client.put("one at a time", con="customer-9")
    assert len(client.reserve_batch(10)) == 2  # of three
    assert client.touch_all() == 2
    assert client.session("night", 0) == 2
    assert client.stats_job(first)["idempotency-key"] == "order-7"
    assert client.flush_tube("work") == 3
    member = client.put("member", grp="import")
    after = client.put("after", aft="import")
    assert client.stats_group("import")["pending"] == 1
    assert client.reserve_batch(10)[0].id == member and client.delete_batch([member]) == (1, 0)
    assert client.reserve(timeout=5).id == after
    client.delete(after)


def batches(client):
    ids = [client.put(f"job {n}") for n in range(5)]
    jobs = client.reserve_batch(3, timeout=5)
    assert [(job.id, job.body) for job in jobs] == [(ids[n], f"job {n}") for n in range(3)]
    assert client.delete_batch(jobs + [ids[4], 10**9]) == (4, 1)
    assert client.delete_batch(client.reserve_batch(3)) == (1, 0)
    assert client.delete_batch(client.reserve_batch(3)) == (0, 0)
    assert client.reserve_batch(3) == []
    refused(greenstalk.TimedOutError, client.reserve_batch, 3, timeout=0)


def fields(client):
    client.reserve_fields("tube", "attempts", "trace")
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    first, second = client.put("one", trc=trace), client.put("two")
    job = client.reserve(timeout=5)
    assert (job.id, job.body, job.fields) == (first, "one", {"tube": "work", "attempts": "1", "trace": trace})
    client.release(job)
    assert [job.fields["attempts"] for job in client.reserve_batch(2)] == ["2", "1"]
    assert client.peek(second).fields == {}
    client.reserve_fields()
    client.release(job)
    assert client.reserve_job(first).fields == {} and client.delete_batch([first, second]) == (2, 0)


def tubes(client):
    assert client.watch("other", 5) == 2
    client.reserve_mode("weighted")
    client.reserve_mode("fifo")
    job = client.put("a")
    client.reprioritize(job, 7)
    client.move(job, "other")
    stats = client.stats_job(job)
    assert (stats["pri"], stats["tube"]) == (7, "other")
    client.use("other")
    assert client.reserve(timeout=5).id == job
    client.bury(greenstalk.Job(job, ""))
    assert client.flush_buried("other") == 1
    client.use("work")
    twin, other = client.put("a", idp="twin"), client.put("b")
    client.move(twin, "other")
    assert refused(ExistsError, client.move, client.put("a", idp="twin"), "other").args[0][0] == b"%d" % twin
    assert (client.flush_tube("work"), client.flush_tube("other")) == (2, 1) and other


def all_of(client):
    assert {"idp", "reserve-batch", "flush-tube"} <= set(client.stats()["extensions"].split())
    tags(client)
    batches(client)
    fields(client)
    tubes(client)
    client.close()


def a_session_keeps_the_jobs_of_a_lost_connection(**how):
    lost, after = ExtendedClient(**how), ExtendedClient(**how)
    assert lost.session("night", 60) == 0
    job = lost.put("kept")
    lost.reserve_job(job)
    lost.close()
    assert after.session("night", 60) == 1
    after.delete(job)
    after.close()


def rights_to_one_tube(where):
    """A new connection uses and watches `default`: the recipe needs no right to it, and sends no command for it."""
    for tubes in ({"use": "mail"}, {"watch": "mail"}, {"watch": ["mail"]}, {"use": "mail", "watch": "mail"}):
        client = ExtendedClient(where, token=TOKEN_FOR_MAIL, **tubes)
        assert client.watching() == (["mail"] if "watch" in tubes else [])
        if "use" in tubes:
            job = client.put("to: ann")
            assert client.reserve_job(job).body == "to: ann"
            client.delete(job)
        else:
            refused(ForbiddenError, client.put, "x")
        client.close()


work = {"use": "work", "watch": "work"}
trusted = ssl.create_default_context(cafile=os.environ["BEANSTALKD_CA"])
all_of(ExtendedClient(address("BEANSTALKD_PORT"), **work))
all_of(ExtendedClient(address("BEANSTALKD_GUARDED_PORT"), token=TOKEN, **work))
all_of(ExtendedClient(address("BEANSTALKD_TLS_PORT"), tls=trusted, token=TOKEN, **work))
all_of(ExtendedClient(os.environ["BEANSTALKD_GUARDED_PATH"], token=TOKEN, **work))
rights_to_one_tube(address("BEANSTALKD_GUARDED_PORT"))
rights_to_one_tube(os.environ["BEANSTALKD_GUARDED_PATH"])
a_session_keeps_the_jobs_of_a_lost_connection(address=address("BEANSTALKD_PORT"), **work)
trusted.load_cert_chain(os.environ["BEANSTALKD_CERTIFICATE"], os.environ["BEANSTALKD_KEY"])
ExtendedClient(address("BEANSTALKD_MUTUAL_PORT"), tls=trusted).put("x")
refused(ForbiddenError, ExtendedClient(address("BEANSTALKD_GUARDED_PORT")).put, "x")
refused(UnauthorizedError, ExtendedClient, address("BEANSTALKD_GUARDED_PORT"), token="x" * 40)
untrusted = ssl.create_default_context()
refused(ssl.SSLCertVerificationError, ExtendedClient, address("BEANSTALKD_TLS_PORT"), tls=untrusted, token=TOKEN)
print("clients: greenstalk with the additions: good")
