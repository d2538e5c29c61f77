#!/usr/bin/env python3
"""Runs a command beside three servers: servers.py COMMAND [ARGUMENT...]

The first is as with_server.py starts it: $BEANSTALKD_PORT and $BEANSTALKD_PID. It has a rule for the tube `retried`
(TUBES). The second has an access file. It allows everything to a client that logs in with $BEANSTALKD_TOKEN, puts and
reserves in the tube `mail` to one that logs in with $BEANSTALKD_TOKEN_FOR_MAIL, and nothing to others. It listens
without encryption on $BEANSTALKD_GUARDED_PORT and on the unix socket $BEANSTALKD_GUARDED_PATH, and with TLS on
$BEANSTALKD_TLS_PORT. $BEANSTALKD_CA is the authority of its certificate, which is for 127.0.0.1 and localhost. A third
server has the same certificate on $BEANSTALKD_MUTUAL_PORT, and asks its clients for one: $BEANSTALKD_CERTIFICATE with
the key $BEANSTALKD_KEY.
"""

import hashlib
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import with_server  # noqa: E402

TOKEN = "token-of-the-suite-of-clients-0123456789"
TOKEN_FOR_MAIL = "token-for-one-tube-alone-0123456789abcdef"
RULES = """[identities.everybody]
tokens = ["%s"]
produce = ["*"]
work = ["*"]
observe = ["*"]
manage = ["*"]

[identities.mail]
tokens = ["%s"]
produce = ["mail"]
work = ["mail"]
"""
TUBES = """[[tube]]
name = "retried"
max-attempts = 3
backoff = "1h"
dead-tube = "dead"
"""


def make_certificate(directory):
    """A certificate that is its own authority, and its key."""
    certificate, key = os.path.join(directory, "cert.pem"), os.path.join(directory, "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        + ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        + ["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    return certificate, key


def main():
    os.environ.setdefault("RUST_LOG", "error")  # what the tests let it refuse is no news
    program = os.environ.get("BEANSTALKD", os.path.join(with_server.ROOT, "target/debug/beanstalkd"))
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = make_certificate(directory)
        rules = os.path.join(directory, "access.toml")
        with open(rules, "w", encoding="ascii") as file:
            hashes = (hashlib.sha256(token.encode("ascii")).hexdigest() for token in (TOKEN, TOKEN_FOR_MAIL))
            file.write(RULES % tuple(hashes))
        os.chmod(rules, 0o600)
        tls_port, mutual_port = with_server.free_port(), with_server.free_port()
        files = ["--tls-cert", certificate, "--tls-key", key]
        tubes = os.path.join(directory, "tubes.toml")
        with open(tubes, "w", encoding="ascii") as file:
            file.write(TUBES)
        pid, port = with_server.start(program, ["--tubes", tubes])
        guarded_path = os.path.join(directory, "guarded.sock")
        guarded_pid, guarded_port = with_server.start(
            program,
            ["--listen", f"tls://127.0.0.1:{tls_port}", "--listen", f"unix:{guarded_path}", *files, "--access", rules],
        )
        mutual_pid, _ = with_server.start(
            program, ["--listen", f"tls://127.0.0.1:{mutual_port}", *files, "--tls-client-ca", certificate]
        )
        environment = dict(
            os.environ,
            BEANSTALKD_PORT=str(port),
            BEANSTALKD_PID=str(pid),
            BEANSTALKD_GUARDED_PORT=str(guarded_port),
            BEANSTALKD_GUARDED_PATH=guarded_path,
            BEANSTALKD_TLS_PORT=str(tls_port),
            BEANSTALKD_MUTUAL_PORT=str(mutual_port),
            BEANSTALKD_CA=certificate,
            BEANSTALKD_CERTIFICATE=certificate,
            BEANSTALKD_KEY=key,
            BEANSTALKD_TOKEN=TOKEN,
            BEANSTALKD_TOKEN_FOR_MAIL=TOKEN_FOR_MAIL,
        )
        try:
            code = subprocess.run(sys.argv[1:], env=environment).returncode
        finally:
            stopped = [with_server.stop(one) for one in (pid, guarded_pid, mutual_pid)]
    if not all(stopped):
        print("servers: a server did not stop cleanly", file=sys.stderr)
        return code or 1
    return code


if __name__ == "__main__":
    sys.exit(main())
