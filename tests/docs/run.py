#!/usr/bin/env python3
"""Runs the commands and programs that the documentation shows.

A fenced block of README.md and doc/*.md in one of LANGUAGES has a mark after its language:

    run       run it beside a server for each port in it; a block ```text output after it has the expected output,
              in which ... matches any text, and a line of it any lines
    files     run it; the files *.pem that it makes exist for the later blocks
    then      run it as `run` does, beside the servers of the block before, as a reader would
    serve     start the server with this command line: it must answer, and stop on a signal
    staged    run it as `run` does, with a directory of the test as /; nothing is built
    database  run it as `run` does, beside two databases db1 and db2, which all blocks share. Processes that a block
              starts in the background end with it
    make      run it in the repository, with few seeds
    dry-run   run `make` with -n, because the block takes too long or would run this program again
    by-hand   do not run it: it needs the network (`make package-check` tests the package) or other tools

A block ```toml rules is a file of rules for tubes. The server must accept it; the blocks after it, up to the next
heading, run beside servers that follow it.

All commands of the documents are in such blocks: a block without a language fails, and so does an indented one.

No line in the middle of a paragraph may begin a list. `checks` compares the documents with the source and the server.

The blocks of NEWCOMERS run twice more, in their order, beside servers with urgent jobs of others (OLD_TUBES), which
must still be there afterwards: a reader may try the examples on a server that is used already, and try them again. They
run once more beside servers whose access rules permit them nothing but the tubes of the examples, OWN_TUBES.

It replaces ports and paths of the text by those of the test. It skips a block with a message if a program or client is
missing. If CI is set, that fails, except for the reasons in PERMITTED_IN_CI. Where no module proxy has go-beanstalk,
the programs in Go run with tests/clients/go/stand_in.
"""

import functools
import glob
import itertools
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import with_server  # noqa: E402

from checks import DOCUMENTS, TIMEOUT_S, all_faults  # noqa: E402
from databases import Databases, missing as missing_database  # noqa: E402
from servers import SERVER, TLS_PORT, Servers, needs_certificate  # noqa: E402

CLIENTS = os.path.join(ROOT, "target/clients")
RECIPES = os.path.join(ROOT, "tests/clients")
LANGUAGES = ("sh", "python", "js", "go", "php", "ruby")
MARKS = ("run", "files", "then", "serve", "staged", "database", "make", "dry-run", "by-hand")
BLOCK_TIMEOUT_S = 600  # of a block: whole suites or a build, on a busy machine
SEEDS = "20"  # of a `make` block, and its cases, whatever it says
TOPIC = "lines::"  # of the conformance suite, where a `make` block runs all of it: `make check` does so, over TLS, too
PHP_LIBRARIES = {
    "Pheanstalk": "Pheanstalk",
    "Laravel": "Illuminate/Queue",
    "Symfony": "Symfony/Component/Messenger/Bridge/Beanstalkd",
}
# Replacements of the commands that would change the machine: they change a directory that stands for /. Signals to the
# service go to the server of the block.
STAGED_COMMANDS = {
    "sudo": 'exec "$@"',
    "useradd": 'exec /usr/sbin/useradd --prefix "$DESTDIR" "$@"',
    "systemctl": """case "$1" in
        daemon-reload) exit 0 ;;
        kill) [ "$2 $4" = "-s beanstalkd" ] && exec kill -s "$3" "$BEANSTALKD_PID" ;;
        stop | start) exit 0 ;;
        enable)
            shift
            [ "$1" != --now ] || shift
            exec /usr/bin/systemctl --quiet --root="$DESTDIR" enable "$@" ;;
    esac
    echo "the test has no replacement of: systemctl $*" >&2
    exit 1""",
    # There is no cluster: this checks the manifests, and that they have the label that the command selects.
    "kubectl": """case "$1 $2" in
        "apply -f") [ "$3" = packaging/kubernetes/ ] && exec sh tests/packaging/kubernetes.sh ;;
        "get pods") [ "$3" = --selector ] && exec grep -q "${4%%=*}: ${4#*=}" packaging/kubernetes/beanstalkd.yaml ;;
    esac
    echo "the test has no replacement of: kubectl $*" >&2
    exit 1""",
    # The settings of Patroni 3 and 4 that make it strict.
    "patronictl": """[ "$1" = edit-config ] || { echo "the test has no replacement of: patronictl $*" >&2; exit 1; }
    shift
    while [ $# -gt 0 ]; do
        case "$1 $2" in
            "--set synchronous_mode=true" | "--set synchronous_mode_strict=true") ;;
            "--set synchronous_node_count="[1-9]) ;;
            *) echo "Patroni has no setting $2" >&2; exit 1 ;;
        esac
        shift 2
    done""",
}
NEWCOMERS = ("README.md", "doc/clients.md")  # read from the first line to the last, beside one server
OWN_TUBES = "try-*"  # of their examples
SKIPPED = "skipped: "
NO_INTERFACE = "no eth0"
NO_ROOT = "useradd needs root"
PERMITTED_IN_CI = (NO_INTERFACE, NO_ROOT)  # reasons to skip a block: no package to install has these
OTHER_PORT = "11391"  # something else listens there
LIST_ITEM = re.compile(r"(\d+\.|[-+*]) ")
FENCE = re.compile(r"^```(\S+)?(?: +(.+?))?$")
RULES = []  # the blocks ```toml rules that were read, each with its place


class Block:
    def __init__(self, path, line, language, mark):
        self.where = f"{path}:{line}"
        self.language, self.mark = language, mark
        self.lines, self.output = [], None
        self.rules = None  # for tubes; a list of lines

    @property
    def text(self):
        return "\n".join(self.lines) + "\n"


def blocks(path):
    """The blocks of a file that are programs or command lines."""
    found, current, last, rules, in_list, in_paragraph = [], None, None, None, False, False
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.rstrip("\n")
            fence = FENCE.match(line)
            if current is not None:
                if line == "```":
                    current = None
                else:
                    current.append(line)
            elif fence:
                language, mark = fence.group(1), fence.group(2)
                if language is None:
                    sys.exit(f"docs: {path}:{number}: the block has no language; write ```text for text")
                current = []
                if language in LANGUAGES:
                    if mark not in MARKS:
                        sys.exit(f"docs: {path}:{number}: expected one of the marks {MARKS}")
                    last = Block(path, number, language, mark)
                    last.lines, last.rules = current, rules
                    found.append(last)
                elif (language, mark) == ("toml", "rules"):
                    last, rules = None, current
                    RULES.append((f"{path}:{number}", rules))
                elif (language, mark) == ("text", "output"):
                    last.output = current
            elif line:
                rules = None if line.startswith("#") else rules
                if re.match(r" {4}\S", line) and not in_list:
                    sys.exit(f"docs: {path}:{number}: an indented block; write a fenced block with its language")
                if in_paragraph and LIST_ITEM.match(line):
                    sys.exit(f"docs: {path}:{number}: Markdown begins a list here, in the middle of a paragraph")
                in_list = line.startswith(" ") or LIST_ITEM.match(line)
                last = last if last is None or last.output is None else None
            in_paragraph = current is None and line and not in_list and not line.startswith(("#", "|", "```"))
    return found


def command_for(block, directory):
    """The command that runs the program, its environment, and the reason why it cannot run, or None."""
    name = os.path.join(directory, "program")
    environment = dict(os.environ)
    if block.language == "sh":
        os.symlink(SERVER, os.path.join(directory, "beanstalkd"))
        environment["PATH"] = f"{directory}:{environment['PATH']}"
        for inherited in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
            environment.pop(inherited, None)
        tools = re.findall(r"^(openssl|stunnel|haproxy|keepalived) |\| (nc) ", block.text, re.MULTILINE)
        missing = next((f"no {tool}" for tool in map("".join, tools) if not shutil.which(tool)), None)
        # Its configuration names an interface; tests/failover uses it in a separate network.
        if "keepalived" in block.text and not os.path.exists("/sys/class/net/eth0"):
            missing = missing or NO_INTERFACE
        if block.mark == "staged":
            missing = missing or stage(directory, environment)
        elif block.mark == "dry-run":
            environment["MAKEFLAGS"] = "n"
        elif block.mark == "make":
            environment.update(SEEDS=SEEDS, OPTIMIZED="")
            for peer in re.findall(r"=(/usr/bin/\S+)", block.text):
                missing = missing or (None if os.path.exists(peer) else f"no {peer}")
        return ["bash", "-euo", "pipefail", name], environment, missing
    if block.language == "python":
        python = os.path.join(CLIENTS, "python/bin/python")
        environment.update(PYTHONPATH=os.path.join(RECIPES, "python"), PYTHONDONTWRITEBYTECODE="1")
        return [python, name], environment, None if os.path.exists(python) else "make clients comes first"
    if block.language == "js":
        modules = os.path.join(CLIENTS, "node/node_modules")
        environment["NODE_PATH"] = os.pathsep.join((modules, os.path.join(RECIPES, "node")))
        there = os.path.isdir(os.path.join(modules, "node-beanstalk"))
        return ["node", name], environment, None if there else "make clients comes first"
    if block.language == "php":
        os.mkdir(os.path.join(directory, "vendor"))
        os.symlink(os.path.join(ROOT, "tests/docs/autoload.php"), os.path.join(directory, "vendor/autoload.php"))
        for recipe in glob.glob(os.path.join(RECIPES, "php/[A-Z]*.php")):
            os.symlink(recipe, os.path.join(directory, os.path.basename(recipe)))
        needed = [library for name_in_text, library in PHP_LIBRARIES.items() if name_in_text in block.text]
        missing = [library for library in needed if not succeeds(["php", "-r", f"require '{library}/autoload.php';"])]
        there = succeeds(["php", "-v"])
        return ["php", name], environment, "no php" if not there else f"no {missing[0]}" if missing else None
    if block.language == "ruby":
        environment["RUBYLIB"] = os.path.join(RECIPES, "ruby")
        there = succeeds(["ruby", "-e", "require 'beaneater'"])
        return ["ruby", name], environment, None if there else "no ruby with beaneater"
    return go_command(name, directory, environment)


def go_command(name, directory, environment):
    """As `command_for`, in a module whose package `extended` is the recipe, with go-beanstalk or its replacement."""
    os.rename(name, name + ".go")
    os.mkdir(os.path.join(directory, "extended"))
    os.symlink(os.path.join(RECIPES, "go/extended.go"), os.path.join(directory, "extended/extended.go"))
    stand_in = f"github.com/beanstalkd/go-beanstalk={RECIPES}/go/stand_in"
    there = succeeds(["go", "mod", "init", "example"], directory) and (
        succeeds(["go", "mod", "tidy"], directory)
        or succeeds(["go", "mod", "edit", "-replace", stand_in], directory)
        and succeeds(["go", "mod", "tidy"], directory)
    )
    return ["go", "run", name + ".go"], environment, None if there else "no go"


def stage(directory, environment):
    """Installs into `directory`, and puts STAGED_COMMANDS before the commands of the machine. Returns the reason why
    this is impossible here, or None."""
    for needed in ("/usr/bin/systemctl", "/usr/sbin/useradd"):
        if not os.path.exists(needed):
            return f"no {needed}"
    if os.getuid() != 0:
        return NO_ROOT
    root = os.path.join(directory, "root")
    os.makedirs(os.path.join(root, "etc"))
    for base in ("passwd", "group", "shadow", "gshadow"):
        open(os.path.join(root, "etc", base), "w", encoding="utf-8").close()
    # With CARGO=true, `make` builds nothing: it installs the program under test.
    environment.update(DESTDIR=root, PREFIX="/usr", BINARY=SERVER, CARGO="true")
    subprocess.run(["make", "--silent", "install"], cwd=ROOT, env=environment, check=True)
    commands = os.path.join(directory, "commands")
    os.mkdir(commands)
    for command, script in STAGED_COMMANDS.items():
        path = os.path.join(commands, command)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path, 0o755)
    environment["PATH"] = f"{commands}:{environment['PATH']}"
    return None


def succeeds(command, directory=None):
    try:
        return subprocess.run(command, cwd=directory, capture_output=True, timeout=BLOCK_TIMEOUT_S).returncode == 0
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False


def here(text, ports, directory):
    """The text with the test's ports and directory in it."""
    for shown, port in ports.items():
        text = re.sub(rf"\b{shown}\b", str(port), text)
    text = re.sub(r"127\.0\.0\.1:(11400|11380)", "127.0.0.1:0", text)
    text = re.sub(rf"\b{OTHER_PORT}\b", str(with_server.free_port()), text)
    text = text.replace("/etc/default/", os.path.join(directory, "root/etc/default/"))
    text = text.replace("/path/to/another", SERVER)
    text = re.sub(r"\b(SEEDS|CASES)=\d+", rf"\g<1>={SEEDS}", text)
    text = re.sub(r"^make conformance(?!.* CASES=)", f"make conformance CASES={TOPIC}", text, flags=re.MULTILINE)
    return text.replace("/var/lib/beanstalkd", os.path.join(directory, "binlog"))


def differs(expected, actual):
    """Whether `actual` is not `expected`, in which ... matches any text, and a line of it any lines."""
    any_lines = "(?:.*\n)*?.*"
    lines = (any_lines if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") for line in expected)
    pattern = "\n".join(lines)
    return re.fullmatch(pattern, actual.replace("\r\n", "\n").strip("\n")) is None


def run(block, directory, of_port):
    """Runs the block. Returns None if it succeeds, else the fault, or SKIPPED and the reason."""
    ports = {shown: port for shown, (_, port) in of_port.items()}
    with open(os.path.join(directory, "program"), "w", encoding="utf-8") as program:
        program.write(here(block.text, ports, directory))
    command, environment, missing = command_for(block, directory)
    if needs_certificate(block, directory):
        missing = "no certificate"
    if missing:
        return SKIPPED + missing
    for pid, _ in list(of_port.values())[:1]:
        environment["BEANSTALKD_PID"] = str(pid)
    in_repository = block.mark in ("staged", "make", "dry-run")
    ended = subprocess.run(
        command,
        cwd=ROOT if in_repository else directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=BLOCK_TIMEOUT_S,
    )
    if ended.returncode:
        return f"ended with {ended.returncode}\n{ended.stdout}{ended.stderr}"
    if block.output is not None and differs(block.output, ended.stdout):
        return "the output is not the expected one:\n" + ended.stdout
    return None


@functools.cache
def databases():
    return Databases()


def run_beside_databases(block, directory):
    """As `run`, for a block that needs databases."""
    if missing_database():
        return SKIPPED + missing_database()
    # A port for each port in the block, also for those of metrics.
    ports = {shown: (None, with_server.free_port()) for shown in re.findall(r"\b113[0-9]{2}\b", block.text)}
    block.lines = databases().here(block.text).splitlines()
    if re.search(r"&$", block.text, re.M):
        block.lines.insert(0, "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT")
    databases().write_sudo(directory)
    return run(block, directory, ports)


def serve(block, directory):
    """Starts a server with each command line of the block. Returns None if all answer and stop, else the fault."""
    text = here(block.text.replace("\\\n", " "), {TLS_PORT: 0}, directory)
    if needs_certificate(block, directory):
        return SKIPPED + "no certificate"
    text = re.sub(r"\b\w+\.pem\b", lambda file: os.path.join(directory, file.group()), text)
    for line in text.splitlines():
        line = line.replace("cargo run --release --", "beanstalkd").replace("cargo run --release", "beanstalkd")
        arguments = shlex.split(line, comments=True)
        if not arguments:
            continue
        if arguments[0] != "beanstalkd":
            return f"expected a command line of beanstalkd, found: {line}"
        # The server ignores its -l and -p, because it inherits a socket.
        pid, port = with_server.start(SERVER, arguments[1:])
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as client:
                client.sendall(b"stats\r\n")
                if not client.recv(3) == b"OK ":
                    return f"the server does not answer: {line}"
        finally:
            if not with_server.stop(pid):
                return f"the server did not stop cleanly: {line}"
    return None


def rules_refused():
    """The blocks of rules for tubes that the server does not accept."""
    for where, lines in RULES:
        with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            judged = subprocess.run(
                [SERVER, "--check-tubes", file.name], capture_output=True, text=True, timeout=TIMEOUT_S)
        if judged.returncode:
            yield f"{where}: {judged.stderr}"


def of_used_servers(files):
    """The faults of the blocks of NEWCOMERS when they run again, in their order, beside servers with jobs of others,
    and beside servers whose access rules permit only the tubes of the examples."""
    # Every new connection watches `default`.
    rights = f'produce = ["{OWN_TUBES}"]\nmanage = ["{OWN_TUBES}"]\nobserve = ["*"]\n'
    rights += f'work = ["{OWN_TUBES}", "default"]\n'
    for path in (path for path in NEWCOMERS if path in DOCUMENTS):
        shown = [block for block in blocks(path) if block.mark in ("run", "then") and block.rules is None]
        used = Servers()
        for turn, block in itertools.product(("first", "second"), shown):
            yield from run_again(block, used, files, f"on a server that is used already, the {turn} time")
        used.stop()
        with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as access:
            access.write("[strangers]\n" + rights)
            access.flush()
            guarded = Servers(["--access", access.name])
            for block in shown:
                yield from run_again(block, guarded, files, f"with rights to {OWN_TUBES} alone")
            guarded.stop()


def run_again(block, servers, files, where):
    block.mark = "then"
    with tempfile.TemporaryDirectory() as directory:
        write(files, directory)
        before = set(servers.of_port)
        servers.prepare(block, directory)
        if not servers.options:
            servers.put_old_jobs(set(servers.of_port) - before)
        wrong = run(block, directory, servers.of_port)
    if wrong and not wrong.startswith(SKIPPED):
        yield f"{block.where}: {where}: {wrong}"
    if not servers.options:
        for tube in servers.tubes_without_old_job():
            yield f"{block.where}: {where}: it takes a job of another client in {tube}"


def may_skip(wrong):
    """Whether the result of a block is a permitted reason to skip it."""
    reason = wrong.removeprefix(SKIPPED)
    return reason != wrong and (not os.environ.get("CI") or reason in PERMITTED_IN_CI)


def of_blocks(counts, files):
    """The faults of all blocks. Counts the other blocks by their marks, and adds what they leave for later ones to
    `files`."""
    servers = Servers()
    for block in itertools.chain.from_iterable(map(blocks, DOCUMENTS)):
        wrong = None if block.mark == "by-hand" else outcome(block, servers, files)
        if wrong is None:
            counts[block.mark] += 1
        elif may_skip(wrong):
            counts["skipped"] += 1
            print(f"docs: {block.where}: {wrong}", file=sys.stderr)
        else:
            yield f"{block.where}: {wrong}"
    if wrong := servers.stop():
        yield f"at the end: {wrong}"


def outcome(block, servers, files):
    """None if the block succeeds, else the fault, or SKIPPED and the reason."""
    with tempfile.TemporaryDirectory() as directory:
        write(files, directory)
        binlog = os.path.join(directory, "binlog")
        os.mkdir(binlog)
        if "--check" in block.text:  # needs a directory that a server has used
            with_server.stop(with_server.start(SERVER, ["-b", binlog])[0])
        if block.mark == "serve":
            return serve(block, directory)
        if block.mark == "database":
            return run_beside_databases(block, directory)
        wrong = servers.prepare(block, directory) or run(block, directory, servers.of_port)
        if block.mark == "files":
            for name in glob.glob("*.pem", root_dir=directory):
                with open(os.path.join(directory, name), "rb") as file:
                    files[name] = file.read()
        return wrong


def write(files, directory):
    for name, content in files.items():
        with open(os.path.join(directory, name), "wb") as file:
            file.write(content)


def main():
    counts, files = dict.fromkeys((*MARKS, "skipped", "failed"), 0), {}
    os.environ.setdefault("RUST_LOG", "error")
    # Each begins when the one before has ended, since it uses what that has found.
    for wrong in itertools.chain(all_faults(), of_blocks(counts, files), rules_refused(), of_used_servers(files)):
        counts["failed"] += 1
        print(f"docs: {wrong}", file=sys.stderr)
    print("docs: " + ", ".join(f"{count} {mark}" for mark, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
