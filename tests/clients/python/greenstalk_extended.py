"""greenstalk with what this server adds to the protocol: TLS, log-in, tags of `put`, fields, batches, sessions.

Copy this file beside your program. It needs greenstalk 2.1 from the registry, and nothing else:

    client = ExtendedClient(("queue.example.org", 11301), tls=ssl.create_default_context(), token=TOKEN)
    job_id = client.put("order 7", idp="order-7", exp=3600)
    client.delete_batch(client.reserve_batch(100, timeout=5))
"""

import re
import socket
from functools import partialmethod

import greenstalk

# What the server says beyond C's replies, as exceptions like those of greenstalk.
REPLIES = (b"FORBIDDEN", b"UNAUTHORIZED", b"EXISTS")
ERRORS = [type(f"{reply.decode().title()}Error", (greenstalk.BeanstalkdError,), {}) for reply in REPLIES]
ForbiddenError, UnauthorizedError, ExistsError = ERRORS
greenstalk.ERROR_RESPONSES.update(zip(REPLIES, ERRORS))


class Inserted(int):
    """The id of a job. `state` is None if the job is new, else the state of the job that was there."""

    def __new__(cls, job_id, state=None, _priority=None):
        inserted = super().__new__(cls, job_id)
        inserted.state = state and state.decode("ascii")
        return inserted


def word(value):
    """A name, a number or the id of a job, for a line. A space or a line end in it would change the command."""
    text = str(getattr(value, "id", value))
    if not re.fullmatch(r"[-+/;.$_()A-Za-z0-9:]+", text):
        raise ValueError(f"not a name for the server: {value!r}")
    return text.encode("ascii")


def put_command(encoding, body, priority, delay, ttr, tags):
    data = body.encode(encoding) if isinstance(body, str) else body
    words = b"".join(b" %b:%b" % (word(tag), word(value)) for tag, value in tags.items())
    return b"put %d %a %a %d%b\r\n%b" % (priority, delay, ttr, len(data), words, data)


class ExtendedClient(greenstalk.Client):
    fields = ()

    def __init__(self, address, *args, tls=None, token=None, **options):
        """`tls` is an ssl.SSLContext, with a certificate of the client if the server asks for one. `token` logs in."""
        if isinstance(address, str):
            path, address = address, socket.socket(socket.AF_UNIX)
            address.connect(path)
        elif isinstance(address, tuple):
            plain = socket.create_connection(address)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            address = tls.wrap_socket(plain, server_hostname=address[0]) if tls else plain
        if token is not None:
            address.sendall(b"auth %b\r\n" % token.encode("ascii"))
            with address.makefile("rb", buffering=0) as replies:
                greenstalk._parse_response(replies.readline(), b"AUTHENTICATED")
        super().__init__(address, *args, **options)

    def put(self, body, priority=greenstalk.DEFAULT_PRIORITY, delay=0, ttr=greenstalk.DEFAULT_TTR, **tags):
        """Tags are named arguments: idp="order-7" or "order-7:60", con="customer-9:2", grp="g", aft="g", exp=3600."""
        command = put_command(self.encoding, body, priority, delay, ttr, tags)
        return Inserted(*self._send_cmd(command, b"INSERTED"))

    def reserve_fields(self, *fields):
        """From now on, jobs that are reserved have `fields`, a dict of text: tube, attempts, age, trace and others."""
        self._say("reserve-fields", b"USING", *fields)
        self.fields = fields

    def reserve_batch(self, n, timeout=None):
        """Up to n jobs. With a timeout, waits that many seconds for the first; without one, the list can be empty."""
        count = self._number("reserve-batch", b"RESERVED_BATCH", n, *([] if timeout is None else [timeout]))
        return [self._next_job() for _ in range(count)]

    def _job_cmd(self, cmd, expected):
        self._sock.sendall(cmd + b"\r\n")
        return self._next_job(expected)

    def _next_job(self, expected=b"RESERVED"):
        job_id, size, *values = greenstalk._parse_response(self._reader.readline(), expected)
        body = self._read_chunk(int(size))
        job = greenstalk.Job(int(job_id), body if self.encoding is None else body.decode(self.encoding))
        job.fields = dict(zip(self.fields, (value.decode("ascii") for value in values)))
        return job

    def delete_batch(self, jobs):
        """How many were deleted, and how many were not found."""
        return tuple(map(int, self._say("delete-batch", b"DELETED_BATCH", *jobs))) if jobs else (0, 0)

    def stats_group(self, name):
        return self._stats_cmd(b"stats-group " + word(name))

    def _say(self, command, expected, *words):
        return self._send_cmd(b" ".join(map(word, [command, *words])), expected)

    def _number(self, *command):
        return int(self._say(*command)[0])

    touch_all = partialmethod(_number, "touch-all", b"TOUCHED_ALL")  # how many
    session = partialmethod(_number, "session", b"SESSION")  # name, seconds; how many jobs. Say it on each connection
    watch = partialmethod(_number, "watch", b"WATCHING")  # tube, weight
    reserve_mode = partialmethod(_say, "reserve-mode", b"USING")  # fifo, weighted or weighted-fair
    flush_tube = partialmethod(_number, "flush-tube", b"FLUSHED")  # also the reserved jobs; how many
    flush_buried = partialmethod(_number, "flush-buried", b"FLUSHED")
    move = partialmethod(_say, "move", b"MOVED")  # job, tube
    reprioritize = partialmethod(_say, "reprioritize", b"REPRIORITIZED")  # job, priority
