#!/usr/bin/env python3
"""Holds doc/openapi.yaml against a server: each path, method and status in it is asked for, and each answer has the
form that it describes. That each path of the server is in it is a test of `src/http/api/mod.rs`."""

import concurrent.futures
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

import jsonschema
import yaml

import kit

with open(os.path.join(kit.ROOT, "doc/openapi.yaml"), encoding="utf-8") as file:
    DESCRIPTION = yaml.safe_load(file)
JSON = "application/json"
TEXT_HEADERS = {"X-Beanstalkd-Admin": "1", "Content-Type": "text/plain"}
MANY_JOBS = 200_000


def resolved(part):
    while "$ref" in part:
        name = part["$ref"]
        part = DESCRIPTION
        for step in name.removeprefix("#/").split("/"):
            part = part[step]
    return part


def check(schema, value):
    """Fails if the value does not follow the schema."""
    whole = {**schema, "components": DESCRIPTION["components"]}
    jsonschema.Draft202012Validator(whole).validate(value)


def operation_of(method, path):
    """The path of the description that a request belongs to, with its description."""
    bare = path.split("?")[0]
    fits = lambda described: re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(described)), bare)
    # A path without a variable part comes before one that has it.
    described = min(filter(fits, DESCRIPTION["paths"]), key=lambda found: found.count("{"))
    return described, DESCRIPTION["paths"][described].get(method.lower())


class Checked:
    """Sends requests to a server, and notes which responses it has sent."""

    def __init__(self):
        self.seen = set()

    def ask(self, server, method, path, status, body=None, headers=None):
        """Sends a request. Returns the response, which must have this status and follow its schema."""
        sent = server.send(method, f"/api/v1/{path}", body, headers)
        return self.answer(server, sent, method, path, status, body)

    def answer(self, server, sent, method, path, status, body=None):
        """The response to a request that was sent. It must have this status and follow its schema."""
        path = f"/api/v1/{path}"
        actual, answered, data = server.answer(sent)
        assert actual == status, f"{method} {path} {body}: {actual} {data[:300]}"
        described, operation = operation_of(method, path)
        if operation is None:
            assert actual == 405, f"{method} {path} is not described"
            operation = next(iter(DESCRIPTION["paths"][described].values()))
            assert answered["Allow"], "a refused method names the others"
            self.seen.add((described, None, 405))
        else:
            self.seen.add((described, method.lower(), status))
        if isinstance(body, dict) and status < 300:
            check(operation["requestBody"]["content"][JSON]["schema"], body)
        self.check_headers(answered)
        response = resolved(operation["responses"][str(status)]) if str(status) in operation["responses"] else None
        assert response or status == 405, f"{method} {path}: {status} is not described"
        content = response["content"] if response else {JSON: {}}
        assert answered["Content-Type"] in content, (path, answered["Content-Type"])
        schema = content[answered["Content-Type"]].get("schema")
        if schema:
            check(schema, json.loads(data))
        return json.loads(data) if answered["Content-Type"] == JSON else data

    @staticmethod
    def check_headers(headers):
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"

    def missing(self):
        """The responses in the description that the server has not sent."""
        for path, operations in DESCRIPTION["paths"].items():
            for method, operation in operations.items():
                for status in map(int, operation["responses"]):
                    asked = (path, None if status == 405 else method, status)
                    if asked not in self.seen:
                        yield f"{method} {path} {status}"


def reads(checked, server):
    client = server.client()
    first = client.put("mail", '{"a": "needle"}', priority=3)
    binary = client.put("mail", b"\xff\xfe\x00", delay=1000)
    ask = lambda path, status=200: checked.ask(server, "GET", path, status)
    for _ in range(3):
        client.put("a/b;c", "x" * 40_000)
    ask("server")
    assert {tube["name"] for tube in ask("tubes")["tubes"]} == {"default", "mail", "a/b;c"}
    assert ask("tubes?search=MA*&sort=name&order=ascending")["matched"] == 1
    page = ask("tubes?limit=1&sort=current-jobs-ready")
    assert [tube["name"] for tube in page["tubes"]] == ["a/b;c"]
    names = []
    while page["next"]:
        page = ask(f"tubes?limit=1&sort=current-jobs-ready&cursor={page['next'].replace(';', '%3B')}")
        names += [tube["name"] for tube in page["tubes"]]
    assert names == ["mail", "default"], names
    for query in (
        "limit=0", "limit=501", "sort=host", "order=up", "cursor=x", "nonsense=1", "limit=1&limit=2", "search=%zz",
        f"search={'*' * 65}",
    ):
        ask(f"tubes?{query}", 400)
    assert ask("tubes/a%2Fb%3Bc")["current-jobs-ready"] == 3
    ask("tubes/nothing", 404)
    ask("tubes/-bad", 400)
    assert [job["id"] for job in ask("tubes/mail/jobs?state=ready")["jobs"]] == [first]
    assert [job["id"] for job in ask("tubes/mail/jobs?state=delayed")["jobs"]] == [binary]
    for query, found in (
        ("contains=needle", 1), ("contains=nothing", 0), ("older_than=1000", 0), ("younger_than=1000", 1),
        ("min_priority=3&max_priority=3", 1), ("min_priority=4", 0), ("max_priority=2", 0),
    ):
        assert len(ask(f"tubes/mail/jobs?state=ready&{query}")["jobs"]) == found, query
        assert ask(f"tubes/mail/jobs/count?state=ready&{query}")["count"] == found, query
    tagged = client.put("tagged", "x", tags="grp:rows con:host:2")
    client.put("tagged", "x")
    for tag, found in (
        ("grp", [tagged]), ("grp:rows", [tagged]), ("con:host", [tagged]), ("grp:host", []), ("exp", []),
    ):
        assert [job["id"] for job in ask(f"tubes/tagged/jobs?state=ready&tag={tag}")["jobs"]] == found, tag
        assert ask(f"tubes/tagged/jobs/count?state=ready&tag={tag}")["count"] == len(found), tag
    assert ask(f"jobs/{tagged}")["job"]["group"] == "rows"
    for tag in ("rows", "grp:", "exp:1"):
        ask(f"tubes/tagged/jobs?state=ready&tag={tag}", 400)
    page = ask("tubes/a%2Fb%3Bc/jobs?state=ready&limit=2")
    rest = ask(f"tubes/a%2Fb%3Bc/jobs?state=ready&limit=2&cursor={page['next']}")
    assert len(page["jobs"]) == 2 and len(rest["jobs"]) == 1 and rest["next"] is None
    for query in (
        "", "state=x", "state=ready&cursor=1", "state=ready&older_than=-1", "state=ready&contains=" + "x" * 257,
    ):
        ask(f"tubes/mail/jobs?{query}", 400)
    ask("tubes/mail/jobs/count", 400)
    ask("tubes/nothing/jobs?state=ready", 404)
    ask("tubes/nothing/jobs/count?state=ready", 404)
    assert ask(f"jobs/{first}")["body"] == {"encoding": "text", "data": '{"a": "needle"}', "truncated": False}
    assert ask(f"jobs/{binary}")["body"]["data"] == "//4A"
    assert ask(f"jobs/{binary + 1}")["body"]["truncated"]
    assert ask(f"jobs/{binary}/body") == b"\xff\xfe\x00"
    assert ask(f"jobs/{binary + 1}/body") == b"x" * 40_000
    ask("jobs/x", 400)
    ask("jobs/99999", 404)
    ask("jobs/99999/body", 404)
    worker = server.client()
    assert worker.ask("session s 60") == "SESSION 0"
    kept = client.put("kept", "x")
    worker.reserve("kept")
    assert ask(f"jobs/{kept}")["job"]["session"] == "s" and "kept_for_grace" not in ask(f"jobs/{kept}")["job"]
    found = ask("clients")
    assert found["next"] is None and len(found["clients"]) == 2, found
    assert found["clients"][1]["session"] == "s" and found["clients"][1]["reserved"] == 1, found
    page = ask("clients?limit=1")
    assert len(page["clients"]) == 1 and page["clients"][0]["id"] == found["clients"][0]["id"], page
    others = ask(f"clients?limit=1&cursor={page['next']}")["clients"]
    assert [client["id"] for client in others] == [found["clients"][1]["id"]]
    for query in ("limit=0", "limit=1001", "cursor=x", "nonsense=1"):
        ask(f"clients?{query}", 400)
    kill = lambda id, body, status: checked.ask(server, "POST", f"clients/{id}/actions", status, body)
    for body in ({}, {"action": "end"}, {"action": "kill", "x": 1}):
        kill(found["clients"][1]["id"], body, 400)
    kill("x", {"action": "kill"}, 400)
    kill(found["clients"][1]["id"], {"action": "kill"}, 200)
    kill(found["clients"][1]["id"], {"action": "kill"}, 404)
    assert worker.socket.recv(1) == b"" and len(ask("clients")["clients"]) == 1
    assert ask(f"jobs/{kept}")["job"]["kept_for_grace"] is True
    assert ask("tubes/kept/jobs?state=reserved")["jobs"][0]["kept_for_grace"] is True
    client.ask("flush-tube kept")
    ask("tasks")
    ask("tasks/99999", 404)
    ask("tasks/x", 400)
    for path in ("tubes/mail", "jobs/1", "jobs/1/body", "tasks", "tasks/1", "tubes/mail/jobs/count"):
        checked.ask(server, "POST", path, 405, {})
    for path in ("tubes/mail/actions", "jobs/1/actions", "jobs/actions", "tasks/1/stop"):
        ask(path, 405)
    checked.ask(server, "DELETE", "tubes/mail/jobs", 405)


def puts_with_tags(client, post):
    tags = ["idp:order-7:60", "con:host:2", "grp:rows", "exp:600"]
    first = post("tubes/tags/jobs", {"body": "x", "priority": 9, "tags": tags}, 201)["job"]
    stats = client.stats(first)
    shown = ("idempotency-key", "idempotency-ttl", "concurrency-key", "concurrency-limit", "group")
    assert [stats[key] for key in shown] == ["order-7", "60", "host", "2", "rows"], stats
    again = post("tubes/tags/jobs", {"body": "y", "priority": 4, "tags": ["idp:order-7"]}, 200)
    assert (again["job"], again["done"], again["skipped"]) == (first, 0, 1), again
    assert client.stats(first)["pri"] == "4" and client.stats_tube("tags")["current-jobs-ready"] == "1"
    held = post("tubes/tags/jobs", {"body": "z", "tags": ["aft:rows"]}, 201)["job"]
    assert client.stats(held)["held"] == "true"
    post("tubes/tags/jobs", {"body": "", "tags": []}, 201)
    for tags in (
        "idp:a", [1], ["x"], [""], ["idp:"], ["exp:0"], ["idp:a", "idp:b"], ["idp:a grp:b"], ["grp:" + "g" * 201],
    ):
        post("tubes/tags/jobs", {"body": "", "tags": tags}, 400)


def changes(checked, server):
    client = server.client()
    post = lambda path, body, status: checked.ask(server, "POST", path, status, body)
    for body in ({"body": "hello"}, {"body": "aGVsbG8=", "encoding": "base64", "priority": 5, "delay": 0, "ttr": 9}):
        job = post("tubes/new/jobs", body, 201)["job"]
        assert checked.ask(server, "GET", f"jobs/{job}", 200)["body"]["data"] == "hello"
    assert client.stats(job)["pri"] == "5" and client.stats(job)["ttr"] == "9"
    for body in (
        {}, {"body": 1}, {"body": "?", "encoding": "base64"}, {"body": "", "encoding": "x"}, {"body": "", "x": 1},
        {"body": "", "priority": -1}, {"body": "", "priority": 1 << 32}, {"body": "", "priority": 0.5},
        {"body": "", "delay": 0.1234}, {"body": "", "delay": "1"}, {"body": "", "ttr": 1 << 32},
        b"[]", b"{", b"[" * 100_000,
    ):
        post("tubes/new/jobs", body, 400)
    post("tubes/new/jobs", {"body": "x" * 70_000}, 413)
    puts_with_tags(client, post)
    action = f"jobs/{job}/actions"
    post(action, {"action": "kick"}, 409)
    post(action, {"action": "delay", "delay": 100.5}, 200)
    assert client.stats(job)["state"] == "delayed" and client.stats(job)["delay"] == "100"
    assert 50 <= int(client.stats(job)["time-left"]) <= 100
    delayed = post("tubes/new/jobs", {"body": "", "delay": 600.25, "ttr": 1.5}, 201)["job"]
    assert client.stats(delayed)["state"] == "delayed"
    assert client.stats(delayed)["ttr"] == "1", "the protocol rounds down"
    post(action, {"action": "kick"}, 200)
    post(action, {"action": "priority", "priority": 77}, 200)
    post(action, {"action": "move", "to": "other"}, 200)
    assert (client.stats(job)["pri"], client.stats(job)["tube"]) == ("77", "other")
    for body in (
        {"action": "explode"}, {"action": "move"}, {"action": "move", "to": "-"}, {"action": "kick", "jobs": [1]},
    ):
        post(action, body, 400)
    assert client.reserve("other") == job
    post(action, {"action": "priority", "priority": 1}, 409)
    post(action, {"action": "delete"}, 200)
    assert client.ask(f"delete {job}") == "NOT_FOUND", "a client that had reserved it finds it gone"
    post(action, {"action": "delete"}, 404)
    jobs = [client.put("many", f"{number}", priority=5) for number in range(10)]
    task = server.finish(post("jobs/actions", {"action": "delete", "jobs": jobs[:3] + [99999]}, 202))
    assert (task["done"], task["skipped"], task["state"]) == (3, 1, "done"), task
    post("jobs/actions", {"action": "delete", "jobs": jobs[3:4]}, 200)
    post("jobs/actions", {"action": "delete", "jobs": jobs[:1]}, 404)
    post("jobs/actions", {"action": "kick", "jobs": jobs[4:5]}, 409)
    post("jobs/actions", {"action": "kick", "jobs": []}, 400)
    tube = "tubes/many/actions"
    counted = checked.ask(server, "GET", "tubes/many/jobs/count?state=ready&contains=7", 200)
    late = client.put("many", "7")
    chosen = {"state": "ready", "contains": "7", "expected": counted["count"], "as_of": counted["as_of"]}
    task = server.finish(post(tube, {"action": "delay", "delay": 500, **chosen}, 202))
    assert (task["done"], task["expected"]) == (1, 1), task
    assert client.stats(late)["state"] == "ready", "what comes after the count is left alone"
    checked.ask(server, "GET", f"tasks/{task['id']}", 200)
    checked.ask(server, "POST", f"tasks/{task['id']}/stop", 202)
    checked.ask(server, "POST", "tasks/99999/stop", 404)
    post(tube, {"action": "delete", **chosen, "as_of": "5-5-a000000000000000"}, 409)
    post(tube, {"action": "delete", "state": "ready"}, 400)
    post(tube, {"action": "pause", "seconds": 60.25}, 200)
    assert client.stats_tube("many")["pause"] == "60"
    post(tube, {"action": "resume"}, 200)
    assert client.stats_tube("many")["pause"] == "0"
    post("tubes/nothing/actions", {"action": "resume"}, 404)
    client.bury("many", 2)
    assert server.finish(post(tube, {"action": "flush-buried"}, 202))["done"] == 2
    assert server.finish(post(tube, {"action": "flush"}, 202))["done"] > 0
    assert client.stats_tube("many")["current-jobs-ready"] == "0"
    post("server/actions", {"action": "drain"}, 200)
    post("tubes/new/jobs", {"body": ""}, 409)
    post("server/actions", {"action": "undrain"}, 200)
    post("server/actions", {"action": "stop"}, 400)
    post("server/actions", ("Content-Length", "300000"), 413)
    checked.ask(server, "POST", "server/actions", 415, b"{}", TEXT_HEADERS)
    checked.ask(server, "POST", "server/actions", 411, ("Transfer-Encoding", "chunked"))


def follows(checked, server):
    """A request that waits for the end of a job."""
    client = server.client()
    ended, buried, kept = (client.put("follow", "x") for _ in range(3))
    # More of them than there are connections: the newest replace the oldest, and no other request waits for them.
    followers = [http.client.HTTPConnection("127.0.0.1", server.admin, timeout=kit.PATIENCE_S) for _ in range(40)]
    for follower in followers:
        follower.request("GET", f"/api/v1/jobs/{kept}?wait=60")
        server.get("server")
    ask = lambda job, status: checked.ask(server, "GET", f"jobs/{job}?wait=60", status)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        # This thread sends it: the next connection would replace a connection whose request has not arrived.
        def wait(job, status):
            path = f"jobs/{job}?wait=60"
            sent = server.send("GET", f"/api/v1/{path}")
            return threads.submit(checked.answer, server, sent, "GET", path, status)

        gone, aside = wait(ended, 404), wait(buried, 200)
        # Neither a release nor another request ends the wait.
        assert client.reserve_job(buried) and client.ask(f"release {buried} 0 0") == "RELEASED"
        server.get(f"jobs/{buried}")
        assert not concurrent.futures.wait([gone, aside], 0.3).done
        assert client.reserve_job(buried) and client.ask(f"bury {buried} 0") == "BURIED"
        assert client.ask(f"delete {ended}") == "DELETED"
        gone.result(kit.PATIENCE_S)
        assert aside.result(kit.PATIENCE_S)["job"]["state"] == "buried"
    assert ask(buried, 200)["job"]["state"] == "buried" and ask(99999, 404)
    assert checked.ask(server, "GET", f"jobs/{kept}?wait=1", 200)["job"]["state"] == "ready"
    for wrong in ("0", "61", "x", "-1", "1.5"):
        checked.ask(server, "GET", f"jobs/{kept}?wait={wrong}", 400)
    for follower in followers:
        follower.close()


def crowd(checked, server):
    """More tasks than may run at a time, each with much work."""
    client = server.client()
    client.put_many("crowd", MANY_JOBS)
    counted = server.get("tubes/crowd/jobs/count?state=ready")
    chosen = {"state": "ready", "contains": "nothing", "expected": 5, "as_of": counted["as_of"]}
    tasks = []
    for _ in range(17):
        status, task = server.post("tubes/crowd/actions", {"action": "kick", **chosen})
        tasks += [task] if status == 202 else []
    for path, body in (
        ("tubes/crowd/actions", {"action": "kick", **chosen}), ("server/actions", {"action": "undrain"}),
        ("tubes/crowd/jobs", {"body": ""}), ("jobs/actions", {"action": "kick", "jobs": [1, 2]}),
        ("jobs/1/actions", {"action": "kick"}), ("clients/1/actions", {"action": "kill"}),
    ):
        checked.ask(server, "POST", path, 429, body)
    for task in tasks:
        server.post(f"tasks/{task['id']}/stop")
    states = {server.finish(task)["state"] for task in tasks}
    assert states <= {"stopped", "done"} and "stopped" in states, states


EXAMPLES = {"{tube}": "mail", "{job}": "1", "{task}": "1", "{client}": "99999"}


def operations():
    """Each method, and its path with examples in it, under the root of the API."""
    for path, methods in DESCRIPTION["paths"].items():
        for name, example in EXAMPLES.items():
            path = path.replace(name, example)
        for method in methods:
            yield method.upper(), path.removeprefix("/api/v1/")


def refusals_of_every_operation(checked, server):
    json_post = {"X-Beanstalkd-Admin": "1", "Content-Type": JSON}
    for method, path in operations():
        ask = lambda status, body=None, headers=None, path=path: (
            checked.ask(server, method, path, status, body, headers))
        checked.ask(server, "DELETE", path, 405)
        ask(403, headers={**json_post, "Sec-Fetch-Site": "cross-site"})
        ask(421, headers={**json_post, "Host": "evil.example"})
        if method == "GET":
            ask(400, path=f"{path}?%zz")
            continue
        ask(411, ("Transfer-Encoding", "chunked"))
        ask(413, ("Content-Length", "300000"))
        if path.endswith("/stop"):
            ask(400, path="tasks/x/stop")
            continue
        ask(400, b"{")
        ask(415, b"{}", TEXT_HEADERS)


def refusals_of_an_action(checked, server):
    """The server refuses what the description forbids, and a request that lacks what it requires."""
    job = server.client().put("keys", "x")
    counted = server.get("tubes/keys/jobs/count?state=ready")
    chosen = {"state": "ready", "expected": counted["count"], "as_of": counted["as_of"]}
    for path, more in ((f"jobs/{job}/actions", {}), ("jobs/actions", {"jobs": [job]}), ("tubes/keys/actions", chosen)):
        operation = DESCRIPTION["paths"][operation_of("POST", f"/api/v1/{path}")[0]]["post"]
        schema = operation["requestBody"]["content"][JSON]["schema"]
        for wrong in (
            {"action": "move"}, {"action": "priority"}, {"action": "delay"}, {"action": "kick", "to": "other"},
            {"action": "delete", "priority": 1}, {"action": "move", "to": "-"}, {"action": "delay", "delay": -1},
            {"action": "delay", "delay": "1"}, {"action": "priority", "priority": 0.5},
            {"action": "kick", "nonsense": 1}, {"action": "redrive", "rate": 0}, {},
        ):
            checked.ask(server, "POST", path, 400, {**wrong, **more})
            validator = jsonschema.Draft202012Validator({**schema, "components": DESCRIPTION["components"]})
            valid = validator.is_valid({**wrong, **more})
            assert not valid, f"the description permits {wrong} for {path}"
    checked.ask(server, "POST", f"jobs/{job}/actions", 400, {"action": "kick", "state": "ready"})


def the_beginning_of_bodies(checked, server):
    client = server.client()
    client.put("begun", "x" * 300)
    client.put("begun", b"\xff")
    client.put("begun", "é")
    def bodies(number):
        page = checked.ask(server, "GET", f"tubes/begun/jobs?state=ready&body_bytes={number}", 200)
        return [job["body"] for job in page["jobs"]]
    assert bodies(1) == [
        {"encoding": "text", "data": "x", "truncated": True},
        {"encoding": "base64", "data": "/w==", "truncated": False},
        {"encoding": "text", "data": "", "truncated": True},
    ]
    assert [len(body["data"]) for body in bodies(256)] == [256, 4, 1]
    assert "body" not in server.get("tubes/begun/jobs?state=ready")["jobs"][0]
    checked.ask(server, "GET", "tubes/begun/jobs?state=ready&body_bytes=257", 400)
    status, headers, data = server.ask("GET", "/openapi.yaml")
    assert status == 200 and yaml.safe_load(data) == DESCRIPTION
    assert headers["Content-Type"].startswith("application/yaml")


def refusals(checked, server):
    plain = {"Content-Type": JSON}
    marked = {"X-Beanstalkd-Admin": "1", **plain}
    own = f"127.0.0.1:{server.admin}"
    drain = {"action": "drain"}
    checked.ask(server, "POST", "server/actions", 403, drain, plain)
    for header in (
        {"Origin": "http://evil.example"}, {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
    ):
        checked.ask(server, "POST", "server/actions", 403, drain, {**marked, **header})
        checked.ask(server, "GET", "server", 403, headers=header)
    checked.ask(server, "GET", "server", 421, headers={"Host": "evil.example"})
    assert server.get("server")["stats"]["draining"] is False
    own_page = {**marked, "Origin": f"http://{own}", "Sec-Fetch-Site": "same-origin"}
    checked.ask(server, "POST", "server/actions", 200, {"action": "undrain"}, own_page)
    # A proxy that decides about the path decodes it once.
    twice_escaped = "/api/v1/%2574ubes"
    for path in ("/api/v1/", "/api/v1/nothing", "/api/", "/api/v1/tubes/x/y", "/api/v1/%zz", twice_escaped):
        assert server.ask("GET", path)[0] in (400, 404), path
    assert server.ask("GET", "/metrics")[0] == 404
    assert server.ask("POST", "/")[0] == 405


def with_token(checked):
    path, token = kit.token_file()
    with kit.server("--admin-token-file", path) as server:
        bearer = {"Authorization": f"Bearer {token}", "Content-Type": JSON}
        for wrong in (
            {}, {"Authorization": f"Bearer {token[:-1]}"}, {"Authorization": f"Basic {token}"},
            {"X-Beanstalkd-Admin": "1"},
        ):
            checked.ask(server, "GET", "server", 401, headers=wrong)
            checked.ask(server, "POST", "server/actions", 401, {"action": "drain"}, {"Content-Type": JSON, **wrong})
        for method, described in operations():
            checked.ask(server, method, described, 401, headers={"Content-Type": JSON})
        checked.ask(server, "GET", "server", 200, headers={"Host": "queue.example", **bearer})
        checked.ask(server, "POST", "server/actions", 200, {"action": "undrain"}, bearer)
        assert server.ask("GET", "/", headers={})[0] == 200, "the page has nothing secret"
    os.unlink(path)
    with kit.server("--admin-read-only") as server:
        checked.ask(server, "GET", "server", 200)
        checked.ask(server, "POST", "server/actions", 403, {"action": "drain"})


def dead_jobs_are_sent_back(checked):
    with kit.server_with_dead_tube() as server:
        client = server.client()
        dead = client.let_die("mail", 20)
        alive = client.put("dead", "alive")
        count = lambda more="": checked.ask(server, "GET", f"tubes/dead/jobs/count?state=ready{more}", 200)
        assert (count()["count"], count("&dead=true")["count"], count("&dead=false")["count"]) == (21, 20, 21)
        listed = checked.ask(server, "GET", "tubes/dead/jobs?state=ready&dead=true", 200)["jobs"]
        assert [job["id"] for job in listed] == dead and {job["dead-from"] for job in listed} == {"mail"}
        checked.ask(server, "GET", "tubes/dead/jobs/count?state=ready&dead=1", 400)
        for wrong in ({"rate": 0}, {"rate": "1/s"}, {"rate": 1 << 32}, {"to": "mail"}):
            checked.ask(server, "POST", f"jobs/{dead[0]}/actions", 400, {"action": "redrive", **wrong})
        checked.ask(server, "POST", f"jobs/{alive}/actions", 409, {"action": "redrive"})
        checked.ask(server, "POST", f"jobs/{dead[0]}/actions", 200, {"action": "redrive"})
        assert (client.stats(dead[0])["tube"], client.stats(dead[0])["failures"]) == ("mail", "0")
        some = {"action": "redrive", "jobs": [*dead[1:3], alive]}
        task = server.finish(checked.ask(server, "POST", "jobs/actions", 202, some))
        assert (task["done"], task["skipped"]) == (2, 1), task
        # Slowly, until it is stopped.
        counted = count("&dead=true")
        chosen = {"state": "ready", "dead": True, "expected": counted["count"], "as_of": counted["as_of"]}
        slow = checked.ask(server, "POST", "tubes/dead/actions", 202, {"action": "redrive", "rate": 1, **chosen})
        checked.ask(server, "POST", f"tasks/{slow['id']}/stop", 202)
        task = server.finish(slow)
        assert task["state"] == "stopped" and task["done"] < 17, task
        counted = count("&dead=true")
        chosen = {**chosen, "expected": counted["count"], "as_of": counted["as_of"]}
        fast = {"action": "redrive", "rate": 1000, **chosen}
        task = server.finish(checked.ask(server, "POST", "tubes/dead/actions", 202, fast))
        assert (task["done"], task["skipped"]) == (counted["count"], 0), task
        assert {client.stats(job)["tube"] for job in dead} == {"mail"} and client.stats(alive)["tube"] == "dead"
        # By then the tube is full.
        for job in client.let_die("full"):
            client.put("full", "another")
            refused = checked.ask(server, "POST", f"jobs/{job}/actions", 409, {"action": "redrive"})
            assert refused["error"] == "tube-full"
            assert client.stats(job)["dead-from"] == "full"


# Answers of a server to which the system gives no memory.
ONLY_WITHOUT_MEMORY = {"get /api/v1/jobs/{job}/body 507"}


def short_of_memory(checked):
    with kit.server("--max-memory", "64k") as server:
        job = None
        for _ in range(1000):
            status, answer = server.post("tubes/full/jobs", {"body": "x" * 100})
            if status != 201:
                break
            job = answer["job"]
        checked.ask(server, "POST", "tubes/full/jobs", 507, {"body": "x" * 100})
        _crowd = [server.client() for _ in range(4)]
        for client in _crowd:
            client.ask("list-tube-used")
        checked.ask(server, "POST", f"jobs/{job}/actions", 507, {"action": "move", "to": "another"})


def acknowledged_changes_survive_a_kill(checked):
    """A kill directly after the responses loses no change: with -f0 a response waits for the disk."""
    with tempfile.TemporaryDirectory() as directory:
        options = ("-b", directory, "-f0")
        server = kit.Server(*options)
        jobs = [server.post("tubes/kept/jobs", {"body": str(number)})[1]["job"] for number in range(20)]
        server.post(f"jobs/{jobs[0]}/actions", {"action": "delete"})
        server.post(f"jobs/{jobs[1]}/actions", {"action": "priority", "priority": 77})
        server.post(f"jobs/{jobs[2]}/actions", {"action": "move", "to": "moved"})
        server.post(f"jobs/{jobs[3]}/actions", {"action": "delay", "delay": 5000})
        counted = server.get("tubes/kept/jobs/count?state=ready")
        assert counted["count"] == 17
        order = {"action": "delay", "delay": 6000, "state": "ready", "expected": 17, "as_of": counted["as_of"]}
        assert server.finish(server.post("tubes/kept/actions", order)[1])["done"] == 17
        os.kill(server.pid, signal.SIGKILL)
        os.waitpid(server.pid, 0)
        with kit.server(*options) as server:
            client = server.client()
            assert client.stats(jobs[0]) == {}
            assert client.stats(jobs[1])["pri"] == "77"
            assert client.stats(jobs[2])["tube"] == "moved"
            assert client.stats(jobs[3])["delay"] == "5000"
            assert {client.stats(job)["state"] for job in jobs[4:]} == {"delayed"}
            # The earlier server has made this count.
            checked.ask(server, "POST", "tubes/kept/actions", 409, {**order, "action": "delete"})


def a_task_ends_with_its_server_and_its_changes_stay(checked):
    """A kill during a redrive that waits for its rate: it would need a minute."""
    with tempfile.TemporaryDirectory() as directory:
        rules = os.path.join(directory, "rules.toml")
        with open(rules, "w", encoding="utf-8") as file:
            file.write('[[tube]]\nname = "mail"\nmax-attempts = 1\ndead-tube = "dead"\n')
        options = ("-b", directory, "-f0", "--tubes", rules)
        server = kit.Server(*options)
        dead = server.client().let_die("mail", kit.PATIENCE_S)
        task = server.post("jobs/actions", {"action": "redrive", "rate": 1, "jobs": dead})[1]
        task = server.follow(task, lambda task: task["done"] > 0)
        os.kill(server.pid, signal.SIGKILL)
        os.waitpid(server.pid, 0)
        with kit.server(*options) as server:
            checked.ask(server, "GET", f"tasks/{task['id']}", 404)
            client = server.client()
            back = sum(client.stats(job)["tube"] == "mail" for job in dead)
            assert task["done"] <= back < len(dead), (task, back)


def admin_starts_only_where_it_is_safe():
    """Without a token, only this machine can connect; a token is long."""
    path, _ = kit.token_file()
    with tempfile.NamedTemporaryFile("w", suffix=".token") as short:
        short.write("0123456789abcdef")
        short.flush()
        for options, said in (
            (["--admin", "0.0.0.0:0"], "--admin-token-file FILE"),
            (["--admin", "[::]:0"], "--admin-token-file FILE"),
            (["--admin", "127.0.0.1:0", "--admin-token-file", short.name], "fewer than 32"),
            (["--admin", "127.0.0.1:0", "--admin-token-file", short.name + ".none"], "No such file"),
            (["--admin-read-only"], "--admin ADDR"),
        ):
            command = [kit.SERVER, "-l", "127.0.0.1", "-p", "0", *options]
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=kit.PATIENCE_S, env={"RUST_LOG": "error"})
            assert ended.returncode == 5 and said in ended.stderr, (options, ended.returncode, ended.stderr)
    for options in (
        ["--admin", "0.0.0.0:0", "--admin-token-file", path], ["--admin", "[::1]:0"], ["--admin", "localhost:0"],
    ):
        pid, _ = kit.with_server.start(kit.SERVER, options)
        assert kit.with_server.stop(pid), options
    os.unlink(path)


def main():
    checked = Checked()
    with kit.server() as server:
        reads(checked, server)
        changes(checked, server)
        refusals(checked, server)
        refusals_of_every_operation(checked, server)
        refusals_of_an_action(checked, server)
        the_beginning_of_bodies(checked, server)
        follows(checked, server)
        crowd(checked, server)
    with_token(checked)
    dead_jobs_are_sent_back(checked)
    short_of_memory(checked)
    acknowledged_changes_survive_a_kill(checked)
    a_task_ends_with_its_server_and_its_changes_stay(checked)
    admin_starts_only_where_it_is_safe()
    missing = [answer for answer in checked.missing() if answer not in ONLY_WITHOUT_MEMORY]
    assert not missing, "described, and never answered: " + ", ".join(missing)
    print(f"admin: {len(checked.seen)} kinds of answers of the API are as described")


if __name__ == "__main__":
    sys.exit(main())
