"""aiostalk with what this server adds: TLS, log-in, tags of `put`, batches, waits that can be cancelled.

Copy this file beside your program. It needs aiostalk 1.3 from the registry, and nothing else:

    async with ExtendedClient(("queue.example.org", 11301), tls=ssl.create_default_context(), token=TOKEN) as client:
        job_id = await client.put("order 7", idp="order-7", exp=3600)
        await client.delete_batch(await client.reserve_batch(100, timeout=5))
"""

import asyncio
import re

import aiostalk

WORD = re.compile(r"[-+/;.$_()A-Za-z0-9:]+")
# What the server says beyond C's replies, as exceptions like those of the client.
REPLIES = ("FORBIDDEN", "UNAUTHORIZED", "EXISTS", "ABORTED")
ForbiddenError, UnauthorizedError, ExistsError, AbortedError = (
    type(f"{reply.title()}Error", (aiostalk.BeanstalkdError,), {}) for reply in REPLIES
)
ERRORS = (ForbiddenError, UnauthorizedError, ExistsError, AbortedError)
aiostalk.ERROR_RESPONSES.update({reply.encode("ascii"): error for reply, error in zip(REPLIES, ERRORS)})


class Inserted(int):
    """The id of a job. `state` is None if the job is new, else the state of the job that was there: READY, RESERVED,
    DELAYED, BURIED or DELETED."""

    state = None


def word(value):
    """The value as part of a command line. A space or a line end in it would change the command."""
    if not WORD.fullmatch(str(value)):
        raise ValueError(f"not a name for the server: {value!r}")
    return str(value).encode("ascii")


class ExtendedClient(aiostalk.Client):
    fields = ()

    def __init__(self, *args, tls=None, token=None, **options):
        """`tls` is an ssl.SSLContext, with a certificate of the client if the server asks for one. `token` logs in."""
        super().__init__(*args, **options)
        self.tls, self.token = tls, token

    async def connect(self):
        self._reader, self._writer = await asyncio.open_connection(*self.address, ssl=self.tls)
        if self.token is not None:
            await self._send_cmd(b"auth %b" % self.token.encode("ascii"), b"AUTHENTICATED")
        if self.fields:
            await self.reserve_fields(*self.fields)
        await self.use(self.used_tube)
        tubes = [self.watched_tubes] if isinstance(self.watched_tubes, str) else list(self.watched_tubes)
        for tube in tubes:
            await self.watch(tube)
        if aiostalk.DEFAULT_TUBE not in tubes:
            await self.ignore(aiostalk.DEFAULT_TUBE)

    async def put(self, body, priority=aiostalk.DEFAULT_PRIORITY, delay=0, ttr=aiostalk.DEFAULT_TTR, **tags):
        """Tags are named arguments: idp="order-7" or "order-7:60", con="customer-9:2", grp="g", aft="g", exp=3600."""
        if isinstance(body, str):
            body = body.encode(self.encoding)
        words = b"".join(b" %b:%b" % (word(tag), word(value)) for tag, value in tags.items())
        line = b"put %d %d %d %d%b\r\n%b" % (priority, delay, ttr, len(body), words, body)
        values = await self._send_cmd(line, b"INSERTED")
        job_id = Inserted(values[0])
        job_id.state = values[1].decode("ascii") if len(values) > 1 else None
        return job_id

    async def reserve_fields(self, *fields):
        """From now on, jobs that are reserved have `fields`, a dict: tube, attempts, timeouts, releases, age, pri, ttr,
        trace. The values are text."""
        await self._send_cmd(b" ".join([b"reserve-fields", *map(word, fields)]), b"USING")
        self.fields = fields

    async def _job_cmd(self, cmd, expected):
        return await self._job(await self._send_cmd(cmd, expected))

    async def _next_job(self):
        return await self._job(aiostalk._parse_response(await self._reader.readline(), b"RESERVED"))

    async def _job(self, values):
        body = await self._read_chunk(int(values[1]))
        job = aiostalk.Job(int(values[0]), body if self.encoding is None else body.decode(self.encoding))
        job.fields = dict(zip(self.fields, (value.decode("ascii") for value in values[2:])))
        return job

    async def reserve_batch(self, n, timeout=None):
        """Up to n jobs. With a timeout, waits so many seconds for the first; without one, the list can be empty."""
        seconds = b"" if timeout is None else b" %d" % timeout
        count = await self._int_cmd(b"reserve-batch %d%b" % (n, seconds), b"RESERVED_BATCH")
        return [await self._next_job() for _ in range(count)]

    async def reserve_with_abort(self, timeout=None):
        """As reserve, in a task that may be cancelled: a job that came meanwhile is released."""
        self._writer.write(b"reserve-with-abort%b\r\n" % (b"" if timeout is None else b" %d" % timeout))
        reply = asyncio.ensure_future(self._next_job())
        try:
            return await asyncio.shield(reply)
        except asyncio.CancelledError:
            self._writer.write(b"list-tube-used\r\n")  # the first byte ends the wait
            ended, = await asyncio.gather(reply, return_exceptions=True)
            await self._reader.readline()
            if isinstance(ended, aiostalk.Job):
                await self.release(ended, (await self.stats_job(ended))["pri"])
            raise

    async def delete_batch(self, jobs):
        """How many were deleted, and how many were not found."""
        ids = b"".join(b" %d" % aiostalk._to_id(job) for job in jobs)
        deleted, missing = await self._send_cmd(b"delete-batch" + ids, b"DELETED_BATCH")
        return int(deleted), int(missing)

    async def touch_all(self):
        """Touches all jobs that this client has reserved; how many."""
        return await self._int_cmd(b"touch-all", b"TOUCHED_ALL")

    async def session(self, name, grace):
        """Keeps this client's jobs for `grace` seconds if the connection is lost; how many it has, with those that an
        earlier connection of this name has left. Say it again on each new connection."""
        return await self._int_cmd(b"session %b %d" % (word(name), grace), b"SESSION")

    async def watch(self, tube, weight=1):
        return await self._int_cmd(b"watch %b" % word(tube) + (b" %d" % weight if weight != 1 else b""), b"WATCHING")

    async def reserve_mode(self, mode):
        """How this client chooses among its tubes: fifo, weighted or weighted-fair."""
        await self._send_cmd(b"reserve-mode %b" % word(mode), b"USING")

    async def flush_tube(self, tube):
        """Deletes all jobs of the tube, those that are reserved included; how many."""
        return await self._int_cmd(b"flush-tube %b" % word(tube), b"FLUSHED")

    async def flush_buried(self, tube):
        return await self._int_cmd(b"flush-buried %b" % word(tube), b"FLUSHED")

    async def kick_job(self, job):
        """aiostalk 1.3.1 does not send it."""
        await self._send_cmd(b"kick-job %d" % aiostalk._to_id(job), b"KICKED")

    async def move(self, job, tube):
        await self._send_cmd(b"move %d %b" % (aiostalk._to_id(job), word(tube)), b"MOVED")

    async def stats_group(self, name):
        return await self._stats_cmd(b"stats-group %b" % word(name))
