"""aiostalk with what this server adds: TLS, log-in, tags of `put`, fields, batches, sessions, waits to be cancelled.

Copy this file and greenstalk_extended.py beside your program. They need aiostalk 1.3 from the registry, which brings
greenstalk, and nothing else:

    async with ExtendedClient(("queue.example.org", 11301), tls=ssl.create_default_context(), token=TOKEN) as client:
        job_id = await client.put("order 7", idp="order-7", exp=3600)
        await client.delete_batch(await client.reserve_batch(100, timeout=5))
"""

import asyncio
from functools import partialmethod

import aiostalk
from greenstalk_extended import ExistsError, ForbiddenError, UnauthorizedError  # noqa: F401
from greenstalk_extended import Inserted, put_command, word

AbortedError = type("AbortedError", (aiostalk.BeanstalkdError,), {})
aiostalk.ERROR_RESPONSES[b"ABORTED"] = AbortedError


class ExtendedClient(aiostalk.Client):
    fields = ()

    def __init__(self, *args, tls=None, token=None, **options):
        """`tls` is an ssl.SSLContext, with a certificate of the client if the server asks for one. `token` logs in."""
        super().__init__(*args, **options)
        self.tls, self.token = tls, token

    async def connect(self):
        if isinstance(self.address, str):
            connection = asyncio.open_unix_connection(self.address)
        else:
            connection = asyncio.open_connection(*self.address, ssl=self.tls)
        self._reader, self._writer = await connection
        if self.token is not None:
            await self._send_cmd(b"auth %b" % self.token.encode("ascii"), b"AUTHENTICATED")
        if self.fields:
            await self.reserve_fields(*self.fields)
        # A new connection uses and watches `default`. A command for that would need a right to the tube.
        if self.used_tube != aiostalk.DEFAULT_TUBE:
            await self.use(self.used_tube)
        tubes = {self.watched_tubes} if isinstance(self.watched_tubes, str) else set(self.watched_tubes)
        for tube in tubes - {aiostalk.DEFAULT_TUBE}:
            await self.watch(tube)
        if aiostalk.DEFAULT_TUBE not in tubes:
            await self.ignore(aiostalk.DEFAULT_TUBE)

    async def put(self, body, priority=aiostalk.DEFAULT_PRIORITY, delay=0, ttr=aiostalk.DEFAULT_TTR, **tags):
        """Tags are named arguments: idp="order-7" or "order-7:60", con="customer-9:2", grp="g", aft="g", exp=3600."""
        command = put_command(self.encoding, body, priority, delay, ttr, tags)
        return Inserted(*await self._send_cmd(command, b"INSERTED"))

    async def reserve_fields(self, *fields):
        """From now on, jobs that are reserved have `fields`, a dict of text: tube, attempts, age, trace and others."""
        await self._say("reserve-fields", b"USING", *fields)
        self.fields = fields

    async def reserve_batch(self, n, timeout=None):
        """Up to n jobs. With a timeout, waits that many seconds for the first; without one, the list can be empty."""
        count = await self._number("reserve-batch", b"RESERVED_BATCH", n, *([] if timeout is None else [timeout]))
        return [await self._next_job() for _ in range(count)]

    async def _job_cmd(self, cmd, expected):
        self._writer.write(cmd + b"\r\n")
        return await self._next_job(expected)

    async def _next_job(self, expected=b"RESERVED"):
        job_id, size, *values = aiostalk._parse_response(await self._reader.readline(), expected)
        body = await self._read_chunk(int(size))
        job = aiostalk.Job(int(job_id), body if self.encoding is None else body.decode(self.encoding))
        job.fields = dict(zip(self.fields, (value.decode("ascii") for value in values)))
        return job

    async def reserve_with_abort(self, timeout=None):
        """As reserve, in a task that may be cancelled: a job that came meanwhile is released."""
        self._writer.write(b"reserve-with-abort%b\r\n" % (b"" if timeout is None else b" %a" % timeout))
        reply = asyncio.ensure_future(self._next_job())
        try:
            return await asyncio.shield(reply)
        except asyncio.CancelledError:
            self._writer.write(b"list-tube-used\r\n")  # the first byte ends the wait
            try:
                ended, = await asyncio.gather(reply, return_exceptions=True)
                await self._reader.readline()
                if isinstance(ended, aiostalk.Job):
                    priority = (await self.stats_job(ended))["pri"]
                    await self._say("release", b"RELEASED", ended, priority, 0, "uncounted")
            except asyncio.CancelledError:
                self._writer.close()  # the next command would get one of these replies
            raise

    async def delete_batch(self, jobs):
        """How many were deleted, and how many were not found."""
        return tuple(map(int, await self._say("delete-batch", b"DELETED_BATCH", *jobs))) if jobs else (0, 0)

    async def stats_group(self, name):
        return await self._stats_cmd(b"stats-group " + word(name))

    async def _say(self, command, expected, *words):
        return await self._send_cmd(b" ".join(map(word, [command, *words])), expected)

    async def _number(self, *command):
        return int((await self._say(*command))[0])

    touch_all = partialmethod(_number, "touch-all", b"TOUCHED_ALL")  # how many
    session = partialmethod(_number, "session", b"SESSION")  # name, seconds; how many jobs. Say it on each connection
    watch = partialmethod(_number, "watch", b"WATCHING")  # tube, weight
    reserve_mode = partialmethod(_say, "reserve-mode", b"USING")  # fifo, weighted or weighted-fair
    flush_tube = partialmethod(_number, "flush-tube", b"FLUSHED")  # also the reserved jobs; how many
    flush_buried = partialmethod(_number, "flush-buried", b"FLUSHED")
    move = partialmethod(_say, "move", b"MOVED")  # job, tube
    reprioritize = partialmethod(_say, "reprioritize", b"REPRIORITIZED")  # job, priority
    kick_job = partialmethod(_say, "kick-job", b"KICKED")  # aiostalk 1.3.1 does not send it
