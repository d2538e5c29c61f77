#!/usr/bin/env python3
"""Sends requests to a server that schemathesis makes from doc/openapi.yaml: right ones, and ones that are wrong in one
place. Each answer has a status and a form that is described, what the description forbids is refused, and the server
goes on."""

import json
import os
import subprocess
import sys

import yaml

import kit

EXAMPLES = os.environ.get("ADMIN_EXAMPLES", "20")
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "negative_data_rejection"
)


def description(target):
    """Writes the description without the parameters that make the server wait before it answers."""
    with open(os.path.join(kit.ROOT, "doc/openapi.yaml"), encoding="utf-8") as file:
        described = yaml.safe_load(file)
    for path in described["paths"].values():
        for operation in path.values():
            parameters = operation.get("parameters", [])
            operation["parameters"] = [each for each in parameters if each.get("name") != "wait"]
    path = os.path.join(target, "openapi.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(described, file)
    return path


def main():
    target = os.path.join(kit.ROOT, "target")
    with kit.server() as server:
        client = server.client()
        for number in range(30):
            client.put("mail", f"body {number}", tags="" if number % 3 else "grp:rows")
        client.bury("mail", 5)
        command = [
            os.path.join(os.path.dirname(sys.executable), "schemathesis"),
            "run", description(target),
            "--url", f"http://127.0.0.1:{server.admin}", "-H", "X-Beanstalkd-Admin: 1", "--phases", "coverage,fuzzing",
            "--max-examples", EXAMPLES, "--generation-deterministic", "--checks", CHECKS,
            "--continue-on-failure", "--warnings", "off", "--no-color",
        ]
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=target)
        if ended.returncode:
            print(ended.stdout, ended.stderr, file=sys.stderr)
            return 1
        # A new client, because a request may have ended the one before.
        assert server.client().ask("use mail") == "USING mail", "the server goes on"
        print("admin: " + next(line.strip() for line in ended.stdout.splitlines() if "generated" in line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
