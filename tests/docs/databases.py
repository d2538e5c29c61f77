"""Two clusters of PostgreSQL with synchronous replication, for blocks of the documentation that need a database.

db1 and db2 of the text are these two. `sudo -u postgres` is what it is on their machine.
"""

import atexit
import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

import with_server

PATIENCE_S = 300
SETTINGS = """
unix_socket_directories = '{directory}'
listen_addresses = '127.0.0.1'
port = {port}
shared_buffers = 32MB
fsync = off
cluster_name = '{name}'
ssl = on
"""
LOG_INS = "local all all trust\nlocal replication all trust\nhost replication all 127.0.0.1/32 trust\n" \
    "host all all 127.0.0.1/32 scram-sha-256\n"
SUDO = """#!/bin/sh
[ "$1 $2" = "-u postgres" ] || { echo "the test has no replacement of: sudo $*" >&2; exit 1; }
shift 2
PGHOST=%s PGPORT=%s PGUSER=postgres PGPASSWORD= exec "$@"
"""


def programs():
    """The directory of the newest PostgreSQL that Debian has installed, or None."""
    found = glob.glob("/usr/lib/postgresql/*/bin")
    return max(found, key=lambda path: float(path.split("/")[4]), default=None)


def missing():
    """The reason why there can be no database here, or None."""
    if programs() is None:
        return "no PostgreSQL (apt-get install postgresql)"
    return None


def as_user():
    """Arguments for subprocess by which root runs a program as another user: PostgreSQL does not run as root."""
    if os.getuid() != 0:
        return {}
    return {"user": "postgres", "group": pwd.getpwnam("postgres").pw_gid, "extra_groups": []}


def wait_until(what, holds):
    give_up_at = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > give_up_at:
            raise RuntimeError(f"timed out: {what}")
        time.sleep(0.05)


class Databases:
    def __init__(self):
        # Short, because the path of a socket may have 107 bytes at most; with the documents' hosts as names.
        self.root = tempfile.mkdtemp(prefix="docs-pg-", dir="/tmp")
        os.chmod(self.root, 0o755)
        self.ports, self.processes = [with_server.free_port() for _ in ("db1", "db2")], []
        atexit.register(self.stop)
        self.make()

    def make(self):
        first, second = (os.path.join(self.root, name) for name in ("db1", "db2"))
        for directory in (first, second):
            os.mkdir(directory)
            if os.getuid() == 0:
                shutil.chown(directory, "postgres", "postgres")
        self.run("initdb", "-N", "-A", "trust", "-U", "postgres", "-E", "UTF8", "-D", f"{first}/data")
        # The other one gets a copy.
        key, certificate = f"{first}/data/server.key", f"{first}/data/server.crt"
        subprocess.run([
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", "/CN=db1", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", certificate,
        ], check=True, capture_output=True, **as_user())
        os.chmod(key, 0o600)
        self.launch(first, self.ports[0])
        source = f"host=127.0.0.1 port={self.ports[0]} user=postgres"
        self.run("pg_basebackup", "-N", "-c", "fast", "-R", "-d", source, "-D", f"{second}/data")
        self.launch(second, self.ports[1])
        self.psql("ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (db2)'")
        self.psql("SELECT pg_reload_conf()")
        state = "SELECT sync_state FROM pg_stat_replication"
        wait_until("the standby streams", lambda: "sync" in self.psql(state))

    def launch(self, directory, port):
        data = f"{directory}/data"
        with open(f"{data}/postgresql.conf", "a", encoding="utf-8") as settings:
            name = os.path.basename(directory)
            settings.write(SETTINGS.format(directory=directory, port=port, name=name))
        with open(f"{data}/pg_hba.conf", "w", encoding="utf-8") as log_ins:
            log_ins.write(LOG_INS)
        with open(f"{self.root}/log", "a", encoding="utf-8") as log:
            command = [f"{programs()}/postgres", "-D", data]
            self.processes.append(subprocess.Popen(command, cwd="/", stdout=log, stderr=log, **as_user()))
        ready = [f"{programs()}/pg_isready", "-q", "-h", directory, "-p", str(port)]
        wait_until("the database starts", lambda: not subprocess.run(ready, check=False).returncode)

    def run(self, program, *arguments):
        command = [f"{programs()}/{program}", *arguments]
        return subprocess.run(command, cwd="/", check=True, capture_output=True, text=True, **as_user()).stdout

    def psql(self, sql):
        where = ["-h", f"{self.root}/db1", "-p", str(self.ports[0]), "-U", "postgres"]
        return self.run("psql", "-X", "-A", "-t", *where, "-c", sql)

    def here(self, text):
        """The text with these databases in it."""
        for name, port in zip(("db1", "db2"), self.ports):
            text = text.replace(f"@{name}", f"@127.0.0.1:{port}").replace(f",{name}", f",127.0.0.1:{port}")
        # On a busy machine, an owner may pause for longer than the default.
        return text.replace("--wait-for-lock", "--wait-for-lock --takeover-after 12")

    def write_sudo(self, directory):
        """Makes the program that replaces sudo on the database's machine."""
        path = os.path.join(directory, "sudo")
        with open(path, "w", encoding="utf-8") as file:
            file.write(SUDO % (f"{self.root}/db1", self.ports[0]))
        os.chmod(path, 0o755)

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGQUIT)
            process.wait()
        shutil.rmtree(self.root, ignore_errors=True)
