"""Each addition of aiostalk_extended.py: plain, then with a token, then with a token in TLS."""

import asyncio
import os
import ssl

import aiostalk
import greenstalk_extended
from aiostalk_extended import ExistsError, ExtendedClient, ForbiddenError, UnauthorizedError

TOKEN = os.environ["BEANSTALKD_TOKEN"]
TOKEN_FOR_MAIL = os.environ["BEANSTALKD_TOKEN_FOR_MAIL"]
WITHIN_S = 10


def address(name):
    return "127.0.0.1", int(os.environ[name])


async def refused(error, awaitable):
    try:
        result = await awaitable
    except error:
        return
    raise AssertionError(f"{error.__name__} expected, but got {result!r}")


async def tags(client):
    first = await client.put("a", idp="order-7", exp=3600)
    again = await client.put("a", priority=7, idp="order-7")  # more urgent, so the reply has the priority, too
    assert (first.state, again, again.state) == (None, first, "READY")
    await refused(ValueError, client.put("x", idp="a key\r\nwith spaces"))
    await client.put("one at a time", con="customer-9")
    await client.put("one at a time", con="customer-9")
    assert len(await client.reserve_batch(10)) == 2  # of three
    assert await client.touch_all() == 2
    assert await client.session("night", 0) == 2
    assert await client.flush_tube("work") == 3
    member = await client.put("member", grp="import")
    after = await client.put("after", aft="import")
    assert (await client.stats_group("import"))["pending"] == 1
    assert (await client.reserve_batch(10))[0].id == member and await client.delete_batch([member]) == (1, 0)
    assert (await client.reserve(timeout=5)).id == after
    await client.delete(after)


async def batches(client):
    ids = [await client.put(f"job {n}") for n in range(5)]
    jobs = await client.reserve_batch(3, timeout=5)
    assert [(job.id, job.body) for job in jobs] == [(ids[n], f"job {n}") for n in range(3)]
    assert await client.delete_batch(jobs + [ids[4], 10**9]) == (4, 1)
    assert await client.delete_batch(await client.reserve_batch(3)) == (1, 0)
    assert await client.delete_batch(await client.reserve_batch(3)) == (0, 0)
    assert await client.reserve_batch(3) == []
    await refused(aiostalk.TimedOutError, client.reserve_batch(3, timeout=0))


async def fields(client):
    await client.reserve_fields("tube", "attempts")
    first, second = await client.put("one"), await client.put("two")
    job = await client.reserve(timeout=5)
    assert (job.id, job.body, job.fields) == (first, "one", {"tube": "work", "attempts": "1"})
    await client.release(job)
    await client.close()
    await client.connect()  # says again what was asked for
    assert [job.fields["attempts"] for job in await client.reserve_batch(2)] == ["2", "1"]
    assert await client.delete_batch([first, second]) == (2, 0)
    await client.reserve_fields()


async def waits(client, place, options):
    """The producer blocks the event loop: whatever it waits for happens before the client reads its reply."""
    producer = greenstalk_extended.ExtendedClient(address(place), use="work", **options)

    async def waits_now():
        waiting = asyncio.ensure_future(client.reserve_with_abort())
        while producer.stats_tube("work")["current-waiting"] == 0:
            await asyncio.sleep(0)
        return waiting

    waiting = await waits_now()
    waiting.cancel()
    await refused(asyncio.CancelledError, waiting)
    waiting = await waits_now()
    job = producer.put("comes with the end of the wait")
    while producer.stats_job(job)["state"] != "reserved":
        pass
    waiting.cancel()
    await refused(asyncio.CancelledError, waiting)
    assert producer.stats_job(job)["releases"] == 0
    producer.delete(job)
    job = producer.put("for nobody yet", priority=7)
    assert producer.stats_job(job)["state"] == "ready"
    waiting = asyncio.ensure_future(client.reserve_with_abort(WITHIN_S))
    assert (await asyncio.wait_for(waiting, WITHIN_S)).id == job
    await refused(aiostalk.TimedOutError, client.reserve_with_abort(0))
    await client.delete(job)
    producer.close()


async def tubes(client):
    assert await client.watch("other", 5) == 2
    await client.reserve_mode("weighted")
    await client.reserve_mode("fifo")
    job = await client.put("a", idp="twin")
    await client.move(job, "other")
    await refused(ExistsError, client.move(await client.put("a", idp="twin"), "other"))
    await client.delete(await client.reserve_job(job))
    await client.bury(await client.reserve(timeout=5))
    assert await client.flush_buried("work") == 1


async def all_of(place, **options):
    async with ExtendedClient(address(place), use="work", watch=["work"], **options) as client:
        await tags(client)
        await batches(client)
        await fields(client)
        await waits(client, place, options)
        await tubes(client)


async def rights_to_one_tube(where):
    """A new connection uses and watches `default`: the recipe needs no right to it, and sends no command for it."""
    for tubes in ({"use": "mail"}, {"watch": "mail"}, {"watch": ["mail"]}, {"use": "mail", "watch": "mail"}):
        async with ExtendedClient(where, token=TOKEN_FOR_MAIL, **tubes) as client:
            assert await client.watching() == (["mail"] if "watch" in tubes else [])
            if "use" in tubes:
                job = await client.put("to: ann")
                assert (await client.reserve_job(job)).body == "to: ann"
                await client.delete(job)
            else:
                await refused(ForbiddenError, client.put("x"))


async def main():
    trusted = ssl.create_default_context(cafile=os.environ["BEANSTALKD_CA"])
    await all_of("BEANSTALKD_PORT")
    await all_of("BEANSTALKD_GUARDED_PORT", token=TOKEN)
    await all_of("BEANSTALKD_TLS_PORT", tls=trusted, token=TOKEN)
    await rights_to_one_tube(address("BEANSTALKD_GUARDED_PORT"))
    await rights_to_one_tube(os.environ["BEANSTALKD_GUARDED_PATH"])
    await refused(UnauthorizedError, ExtendedClient(address("BEANSTALKD_GUARDED_PORT"), token="x" * 40).connect())
    untrusted = ssl.create_default_context()
    unknown = ExtendedClient(address("BEANSTALKD_TLS_PORT"), tls=untrusted, token=TOKEN)
    await refused(ssl.SSLCertVerificationError, unknown.connect())
    trusted.load_cert_chain(os.environ["BEANSTALKD_CERTIFICATE"], os.environ["BEANSTALKD_KEY"])
    async with ExtendedClient(address("BEANSTALKD_MUTUAL_PORT"), tls=trusted) as certified:
        await certified.kick_job(await certified.put("x", delay=60))
        assert (await certified.reserve(timeout=5)).body == "x"
    anonymous = aiostalk.Client(address("BEANSTALKD_GUARDED_PORT"))
    await anonymous.connect()
    await refused(ForbiddenError, anonymous.put("x"))
    await anonymous.close()


asyncio.run(main())
print("clients: aiostalk with the additions: good")
