"""greenstalk with what this server adds to the protocol: TLS, log-in, tags of `put`, batches, weights, whole tubes.

Copy this file beside your program. It needs greenstalk 2.1 from the registry, and nothing else:

    client = ExtendedClient(("queue.example.org", 11301), tls=ssl.create_default_context(), token=TOKEN)
    job_id = client.put("order 7", idp="order-7", exp=3600)
    client.delete_batch(client.reserve_batch(100, timeout=5))
"""

import re
import socket

import greenstalk

WORD = re.compile(r"[-+/;.$_()A-Za-z0-9:]+")


class ForbiddenError(greenstalk.BeanstalkdError):
    """The access rules of the server do not permit this command to this client."""


class UnauthorizedError(greenstalk.BeanstalkdError):
    """The token is nobody's. The server has closed the connection."""


class ExistsError(greenstalk.BeanstalkdError):
    """The other tube has a job with the same idempotency key: `args[0]` has its id."""


greenstalk.ERROR_RESPONSES.update(
    {b"FORBIDDEN": ForbiddenError, b"UNAUTHORIZED": UnauthorizedError, b"EXISTS": ExistsError}
)


class Inserted(int):
    """The id of a job. `state` is None if the job is new, else the state of the job that was there: READY, RESERVED,
    DELAYED, BURIED or DELETED."""

    state = None


def word(value):
    """The value as part of a command line. A space or a line end in it would change the command."""
    if not WORD.fullmatch(str(value)):
        raise ValueError(f"not a name for the server: {value!r}")
    return str(value).encode("ascii")


class ExtendedClient(greenstalk.Client):
    fields = ()

    def __init__(self, address, *args, tls=None, token=None, **options):
        """`tls` is an ssl.SSLContext, with a certificate of the client if the server asks for one. `token` logs in."""
        if isinstance(address, tuple):
            plain = socket.create_connection(address)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            address = tls.wrap_socket(plain, server_hostname=address[0]) if tls else plain
        if token is not None:
            address.sendall(b"auth %b\r\n" % token.encode("ascii"))
            with address.makefile("rb", buffering=0) as replies:
                greenstalk._parse_response(replies.readline(), b"AUTHENTICATED")
        super().__init__(address, *args, **options)

    def extensions(self):
        """The commands and tags that this server adds; empty for C's."""
        return set(self.stats().get("extensions", "").split())

    def put(self, body, priority=greenstalk.DEFAULT_PRIORITY, delay=0, ttr=greenstalk.DEFAULT_TTR, **tags):
        """Tags are named arguments: idp="order-7" or "order-7:60", con="customer-9:2", grp="g", aft="g", exp=3600."""
        if isinstance(body, str):
            body = body.encode(self.encoding)
        words = b"".join(b" %b:%b" % (word(tag), word(value)) for tag, value in tags.items())
        line = b"put %d %d %d %d%b\r\n%b" % (priority, delay, ttr, len(body), words, body)
        values = self._send_cmd(line, b"INSERTED")
        job_id = Inserted(values[0])
        job_id.state = values[1].decode("ascii") if len(values) > 1 else None
        return job_id

    def reserve_batch(self, n, timeout=None):
        """Up to n jobs. With a timeout, waits so many seconds for the first; without one, the list can be empty."""
        seconds = b"" if timeout is None else b" %d" % timeout
        count = self._int_cmd(b"reserve-batch %d%b" % (n, seconds), b"RESERVED_BATCH")
        return [self._next_job() for _ in range(count)]

    def reserve_fields(self, *fields):
        """From now on, jobs that are reserved have `fields`, a dict: tube, attempts, timeouts, releases, age, pri, ttr,
        trace. The values are text."""
        self._send_cmd(b" ".join([b"reserve-fields", *map(word, fields)]), b"USING")
        self.fields = fields

    def _job_cmd(self, cmd, expected):
        return self._job(self._send_cmd(cmd, expected))

    def _next_job(self):
        return self._job(greenstalk._parse_response(self._reader.readline(), b"RESERVED"))

    def _job(self, values):
        body = self._read_chunk(int(values[1]))
        job = greenstalk.Job(int(values[0]), body if self.encoding is None else body.decode(self.encoding))
        job.fields = dict(zip(self.fields, (value.decode("ascii") for value in values[2:])))
        return job

    def delete_batch(self, jobs):
        """How many were deleted, and how many were not found."""
        ids = b"".join(b" %d" % greenstalk._to_id(job) for job in jobs)
        deleted, missing = self._send_cmd(b"delete-batch" + ids, b"DELETED_BATCH")
        return int(deleted), int(missing)

    def touch_all(self):
        """Touches all jobs that this client has reserved; how many."""
        return self._int_cmd(b"touch-all", b"TOUCHED_ALL")

    def session(self, name, grace):
        """Keeps this client's jobs for `grace` seconds if the connection is lost; how many it has, with those that an
        earlier connection of this name has left. Say it again on each new connection."""
        return self._int_cmd(b"session %b %d" % (word(name), grace), b"SESSION")

    def watch(self, tube, weight=1):
        return self._int_cmd(b"watch %b" % word(tube) + (b" %d" % weight if weight != 1 else b""), b"WATCHING")

    def reserve_mode(self, mode):
        """How this client chooses among its tubes: fifo, weighted or weighted-fair."""
        self._send_cmd(b"reserve-mode %b" % word(mode), b"USING")

    def flush_tube(self, tube):
        """Deletes all jobs of the tube, those that are reserved included; how many."""
        return self._int_cmd(b"flush-tube %b" % word(tube), b"FLUSHED")

    def flush_buried(self, tube):
        return self._int_cmd(b"flush-buried %b" % word(tube), b"FLUSHED")

    def move(self, job, tube):
        self._send_cmd(b"move %d %b" % (greenstalk._to_id(job), word(tube)), b"MOVED")

    def reprioritize(self, job, priority):
        self._send_cmd(b"reprioritize %d %d" % (greenstalk._to_id(job), priority), b"REPRIORITIZED")

    def peek_reserved(self):
        return self._peek_cmd(b"peek-reserved")

    def stats_group(self, name):
        return self._stats_cmd(b"stats-group %b" % word(name))
