#!/usr/bin/env python3
"""Runs a command beside a server that it starts: with_server.py COMMAND [ARGUMENT...]

The command finds the server by $BEANSTALKD_PORT (on 127.0.0.1) and $BEANSTALKD_PID. The program is
$BEANSTALKD, by default the debug build. The kernel picks the port, and the server inherits the socket as
from a service manager, so nobody waits until it listens and no port is taken twice.

Ends as the command does, or with 1 where the server does not stop cleanly.
"""

import os
import signal
import socket
import subprocess
import sys
import time

# How long the server may take to start and to stop: far more than a loaded machine needs, as in tests/kit.
PATIENCE_S = 60
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


BOUND = []


def free_port():
    """A port without a listener, which the kernel gives to no other program while this one runs: a socket stays
    bound to it. A server can bind it besides, since both set SO_REUSEADDR."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", 0))
    BOUND.append(bound)
    return bound.getsockname()[1]


def run(program, arguments, listener):
    """Becomes the server, which inherits the listener."""
    first_inherited = 3
    if listener.fileno() == first_inherited:
        os.set_inheritable(first_inherited, True)
    else:
        os.dup2(listener.fileno(), first_inherited)
    environment = dict(os.environ, LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
    environment.setdefault("RUST_LOG", "warn")
    os.execve(program, [program, *arguments], environment)


def start(program, arguments=()):
    """A server on a port that the kernel picks: its process id and the port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    port = listener.getsockname()[1]
    pid = os.fork()
    if pid == 0:
        # Whatever fails, the code of the callers must not run in this process, too.
        try:
            run(program, arguments, listener)
        except OSError as error:
            print(f"with_server: {program}: {error.strerror}", file=sys.stderr, flush=True)
        finally:
            os._exit(127)
    listener.close()
    # It is up when it answers: before that it may not handle signals yet.
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        client.sendall(b"list-tube-used\r\n")
        client.recv(1)
    return pid, port


def stop(pid):
    """Sends SIGTERM. Returns whether the server exits with 0."""
    os.kill(pid, signal.SIGTERM)
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def main():
    program = os.environ.get("BEANSTALKD", os.path.join(ROOT, "target/debug/beanstalkd"))
    pid, port = start(program)
    environment = dict(os.environ, BEANSTALKD_PORT=str(port), BEANSTALKD_PID=str(pid))
    try:
        code = subprocess.run(sys.argv[1:], env=environment).returncode
    finally:
        stopped = stop(pid)
    if not stopped:
        print("with_server: the server did not stop cleanly", file=sys.stderr)
        return code or 1
    return code


if __name__ == "__main__":
    sys.exit(main())
