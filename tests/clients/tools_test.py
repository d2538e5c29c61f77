#!/usr/bin/env python3
"""KEDA's scaler and beanstalk_console, by the commands that they send: with the rights that doc/clients.md names, these
are answered, and the others are refused."""

import os
import socket
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import with_server  # noqa: E402

SCALER = ["stats-tube mail"]
PAGES = ["stats", "list-tubes", "stats-tube mail", "use mail", "peek-ready", "peek-delayed", "peek-buried"]
BUTTONS = ["put 0 0 60 0\r\n", "kick 1", "pause-tube mail 0"]
FOREIGN = ["stats-tube other", "reserve-with-timeout 0"]


def answers(rules, lines):
    """The first words of the answers to a client that has not logged in."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(rules)
        file.flush()
        program = os.environ.get("BEANSTALKD", os.path.join(with_server.ROOT, "target/debug/beanstalkd"))
        pid, port = with_server.start(program, ["--access", file.name])
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
                replies = client.makefile("rb")
                return [answer(client, replies, line) for line in lines]
        finally:
            assert with_server.stop(pid)


def answer(client, replies, line):
    client.sendall(line.encode() + b"\r\n")
    words = replies.readline().decode().split()
    if words[0] in ("OK", "FOUND"):
        replies.read(int(words[-1]) + 2)
    return words[0]


def expect(rules, lines, are_allowed):
    for line, word in zip(lines, answers(rules, lines)):
        assert (word != "FORBIDDEN") == are_allowed, f"{rules!r}: {line!r} was answered {word}"


def main():
    os.environ.setdefault("RUST_LOG", "error")  # what the tests let it refuse is no news
    scaler = '[strangers]\nobserve = ["mail"]\n'
    expect(scaler, SCALER, True)
    expect(scaler, [*BUTTONS, *FOREIGN], False)
    console = '[strangers.loopback]\nobserve = ["*"]\n'
    expect(console, PAGES, True)
    expect(console, [*BUTTONS, FOREIGN[1]], False)
    expect(console + 'produce = ["*"]\nmanage = ["*"]\n', [*PAGES, *BUTTONS], True)
    print("clients: what KEDA and beanstalk_console send, with the rights of the document: good")


if __name__ == "__main__":
    main()
