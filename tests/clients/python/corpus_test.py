"""Tests greenstalk without a server: compares what it sends and how it reads the replies with doc/corpus.

A conversation counts if one connection sends it and greenstalk has a method for each of its requests.
"""

import glob
import json
import os
import re
import socket

import greenstalk

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../doc/corpus/*.json")
ERRORS = tuple(greenstalk.ERROR_RESPONSES)
MIN_CASES = 100  # fewer: the test has become blind


def call(client, request):
    """Calls the method that sends this request; None if there is none."""
    line, _, body = request.partition("\r\n")
    command, *words = line.split(" ")
    # Only numbers as greenstalk writes them.
    numbers = [int(word) for word in words] if all(re.fullmatch(r"0|[1-9]\d*", word) for word in words) else None
    if command == "put" and len(numbers or []) == 4 and len(body) == numbers[3] + 2 and body.endswith("\r\n"):
        return lambda: client.put(body[:-2].encode("latin-1"), *numbers[:3])
    if body:
        return None
    if command == "reserve" and not words:
        return client.reserve
    if command == "reserve-with-timeout" and numbers and len(numbers) == 1:
        return lambda: client.reserve(timeout=numbers[0])
    if command in ("delete", "peek", "kick", "kick-job", "reserve-job", "stats-job") and len(numbers or []) == 1:
        return lambda: getattr(client, command.replace("-", "_"))(numbers[0])
    if command in ("use", "watch", "ignore", "stats-tube") and len(words) == 1 and words[0].isascii():
        return lambda: getattr(client, command.replace("-", "_"))(words[0])
    peeks = {"peek-ready": client.peek_ready, "peek-delayed": client.peek_delayed, "peek-buried": client.peek_buried}
    return peeks.get(line)


def reply_of(step):
    """The reply as bytes. If the corpus has only its pairs, the reply is made as the README of the corpus says."""
    if "expect" in step:
        return step["expect"].encode("latin-1")
    lines = "".join(f"{key}: {value.split('..')[0]}\n" for key, value in step["expect-pairs"].items())
    return f"OK {len(lines) + 4}\r\n---\n{lines}\r\n".encode("latin-1")


def check(result, reply):
    """Checks that the client has read the reply correctly."""
    first, *words = reply.split(b"\r\n")[0].split(b" ")
    if isinstance(result, greenstalk.Error):
        assert isinstance(result, greenstalk.ERROR_RESPONSES[first]), (result, reply)
    elif isinstance(result, greenstalk.Job):
        assert b"%s %d %d\r\n%s\r\n" % (first, result.id, len(result.body), result.body) == reply, (result, reply)
    elif isinstance(result, int):
        assert [b"%d" % result] == words, (result, reply)
    elif isinstance(result, dict):
        lines = "".join(f"{key}: {value}\n" for key, value in result.items())
        assert lines.encode("latin-1") in reply, (result, reply)


def play(case):
    """Whether greenstalk can have this conversation. Fails if it sends or reads something else."""
    steps = case["steps"]
    if len({step.get("connection") for step in steps}) != 1:
        return False
    if any("send" not in step or not step.keys() & {"expect", "expect-pairs"} or "repeat" in step for step in steps):
        return False
    ours, its = socket.socketpair()
    with ours, its, greenstalk.Client(its, encoding=None) as client:
        calls = [call(client, step["send"]) for step in steps]
        if None in calls:
            return False
        for step, method in zip(steps, calls):
            reply = reply_of(step)
            if reply.startswith(b"DEADLINE_SOON") or b"\r\n" not in reply:
                return False
            ours.sendall(reply)
            try:
                result = method()
            except greenstalk.Error as error:
                result = error
            sent = ours.recv(len(step["send"]) + 1)
            assert sent == step["send"].encode("latin-1"), (case["name"], sent, step["send"])
            check(result, reply)
    return True


played = 0
for name in sorted(glob.glob(CORPUS)):
    with open(name, encoding="utf-8") as file:
        played += sum(map(play, json.load(file)["cases"]))
assert played >= MIN_CASES, f"only {played} conversations of the corpus are held by greenstalk"
print(f"clients: greenstalk without a server, {played} conversations of the corpus: good")
