"""The servers beside which the blocks of a document run."""

import os
import re
import socket

import with_server

SERVER = os.environ.get("BEANSTALKD", os.path.join(with_server.ROOT, "target/debug/beanstalkd"))
PORT = r"\b1130[0-9]\b"  # in the documents; each means a server of its own
TLS_PORT = "11311"  # means a server that listens there with TLS, too, with cert.pem and key.pem of the blocks before
OLD_TUBES = ("default", "mail", "orders", "reports")  # of others, on a server that is used already
TIMEOUT_S = 60


def needs_certificate(block, directory):
    """Whether the block needs a certificate that no earlier block has made; None if it does not use TLS."""
    return not os.path.exists(os.path.join(directory, "cert.pem")) if TLS_PORT in block.text else None


class Servers:
    """A server for each port that a block shows. A block with another mark than `then` gets new servers."""

    def __init__(self, options=()):
        self.options = options  # of each of them
        self.of_port = {}  # as shown: process id and port
        self.plain_ports = {}  # as shown: the port without TLS

    def prepare(self, block, directory):
        """Starts the servers that the block needs and that do not run yet. Returns a fault, or None."""
        wrong = None if block.mark == "then" else self.stop()
        if needs_certificate(block, directory) is False and TLS_PORT not in self.of_port:
            port = with_server.free_port()
            files = [f"--tls-{name}={directory}/{name}.pem" for name in ("cert", "key")]
            self.start(TLS_PORT, [f"--listen=tls://127.0.0.1:{port}", *files], port)
        options = []
        if block.rules is not None:
            options = ["--tubes", os.path.join(directory, "tubes.toml")]
            with open(options[1], "w", encoding="utf-8") as file:
                file.write("\n".join(block.rules) + "\n")
        for shown in sorted(set(re.findall(PORT, block.text))):
            if shown not in self.of_port:
                self.start(shown, options)
        return wrong

    def start(self, shown, options, port=None):
        pid, self.plain_ports[shown] = with_server.start(SERVER, [*self.options, *options])
        self.of_port[shown] = pid, port or self.plain_ports[shown]

    def stop(self):
        """Stops all servers. Returns a fault, or None."""
        stopped = [with_server.stop(pid) for pid, _ in self.of_port.values()]
        self.of_port, self.plain_ports = {}, {}
        return None if all(stopped) else "the server of the blocks before did not stop cleanly"

    def put_old_jobs(self, ports):
        """Puts jobs of another client into OLD_TUBES, more urgent than any other job."""
        for shown in ports:
            with socket.create_connection(("127.0.0.1", self.plain_ports[shown]), timeout=TIMEOUT_S) as client:
                replies = client.makefile("rb")
                for tube in OLD_TUBES:
                    client.sendall(b"use %b\r\nput 0 0 60 3\r\nold\r\n" % tube.encode())
                    assert replies.readline().startswith(b"USING") and replies.readline().startswith(b"INSERTED")

    def tubes_without_old_job(self):
        return [tube for port in self.plain_ports.values() for tube in OLD_TUBES if not has_old_job(port, tube)]


def has_old_job(port, tube):
    """Whether the old job of the tube is ready, and was never reserved."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as client:
        replies = client.makefile("rb")
        client.sendall(b"use %b\r\npeek-ready\r\n" % tube.encode())
        replies.readline()
        words = replies.readline().split()
        if words[0] != b"FOUND":
            return False
        client.sendall(b"stats-job %b\r\n" % words[1])
        replies.read(int(words[2]) + 2)
        stats = replies.read(int(replies.readline().split()[1])).decode()
        return "pri: 0\n" in stats and "reserves: 0\n" in stats
