"""Compares the documents with the source, with the files of packaging/monitoring and with a running server.

Each check yields what is wrong, as a line of text: a link leads to no file or heading, a test or a target of cargo is
named that does not exist, doc/protocol.md lacks a key of the stats or has the keys in another order, an alert or a
panel uses a series that does not exist, a recipe of tests/clients is longer than MAX_RECIPE_LINES.
"""

import glob
import itertools
import json
import os
import re
import socket
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import with_server  # noqa: E402

from servers import SERVER  # noqa: E402

TIMEOUT_S = 60
DOCUMENTS = ["README.md", "CHANGELOG.md", *sorted(glob.glob("doc/*.md", root_dir=ROOT)), "doc/corpus/README.md"]
if "DOCUMENT" in os.environ:
    DOCUMENTS = [os.environ["DOCUMENT"]]  # that one alone
# crates/client/README.md is a page of the registry: its programs are compiled as documentation of the crate.
LINKING = [*DOCUMENTS, *([] if "DOCUMENT" in os.environ else ["crates/client/README.md"])]
MAX_RECIPE_LINES = 110  # without empty lines


def all_faults():
    """The faults that all checks find."""
    yield from broken_links()
    yield from tests_missing()
    yield from targets_missing()
    yield from long_recipes()
    yield from stats_keys_missing()
    yield from metrics_missing()
    yield from dashboard_faults()


def broken_links():
    """Links of the documents to files, or to headings of documents, that are not there."""
    for path in LINKING:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            links = re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", file.read())
        for target, anchor in links:
            file = os.path.join(ROOT, os.path.dirname(path), target) if target else os.path.join(ROOT, path)
            if not os.path.exists(file):
                yield f"{path}: there is no {target}"
            elif anchor and anchor not in anchors(file):
                yield f"{path}: {target or 'it'} has no heading for #{anchor}"


def anchors(path):
    """The anchors of the headings of a document, as GitHub makes them."""
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"^```.*?^```", "", file.read(), flags=re.S | re.M)
    found = set()
    for heading in re.findall(r"^#+ +(.*?) *$", text, re.M):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w -]", "", shown.lower()).replace(" ", "-")
        numbered = (f"{anchor}-{number}" for number in itertools.count(1))
        found.add(next(name for name in itertools.chain([anchor], numbered) if name not in found))
    return found


def tests_missing():
    """The tests that doc/compatibility.md, doc/ha.md and doc/security.md name and that are not there."""
    names = [("doc/security.md", ("src", "tests"), name) for name in threat_tests()]
    for document in ("doc/compatibility.md", "doc/ha.md"):
        with open(os.path.join(ROOT, document), encoding="utf-8") as file:
            found = re.findall(r"`((?:src|crates|tests)/\S+): (\w+)`", file.read())
            names += [(document, (path,), name) for path, name in found]
    for document, paths, name in names:
        files = [file for path in paths for file in sources(os.path.join(ROOT, path))]
        if not any(re.search(rf"\b{name}", open(file, encoding="utf-8").read()) for file in files):
            yield f"{document}: there is no test {name} in {' or '.join(paths)}"


def targets_missing():
    """The targets that the documents give to `cargo test --test` and that are not there."""
    files = glob.glob("tests/*.rs", root_dir=ROOT) + glob.glob("crates/*/tests/*.rs", root_dir=ROOT)
    mains = glob.glob("tests/*/main.rs", root_dir=ROOT) + glob.glob("crates/*/tests/*/main.rs", root_dir=ROOT)
    targets = {os.path.basename(os.path.splitext(file)[0]) for file in files}
    targets |= {os.path.basename(os.path.dirname(main)) for main in mains}
    for document in DOCUMENTS:
        with open(os.path.join(ROOT, document), encoding="utf-8") as file:
            named = set(re.findall(r"--test +(\w+)", file.read()))
        for name in sorted(named - targets):
            yield f"{document}: there is no target {name} for cargo test --test"


def threat_tests():
    """The names in the last column of the tables of threats in doc/security.md."""
    with open(os.path.join(ROOT, "doc/security.md"), encoding="utf-8") as file:
        tables = re.findall(r"^\| threat \|.*\n\|[-|]+\n((?:\|.*\n)+)", file.read(), re.MULTILINE)
    for row in "".join(tables).splitlines():
        yield from re.findall(r"`(\w+)`", row.split("|")[-2])


def sources(path):
    return [path] if os.path.isfile(path) else glob.glob(os.path.join(path, "**/*.rs"), recursive=True)


def long_recipes():
    """The recipes that are too long: a recipe is one file that a reader copies and understands."""
    with open(os.path.join(ROOT, "doc/clients.md"), encoding="utf-8") as file:
        recipes = re.findall(r"^\|.*\]\(\.\./(tests/clients/\S+)\) \|$", file.read(), re.M)
    if len(recipes) < 8:
        yield f"doc/clients.md: its table has only {len(recipes)} recipes"
    for path in recipes:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            lines = sum(1 for line in file if line.strip())
        if lines > MAX_RECIPE_LINES:
            yield f"{path}: {lines} lines, more than {MAX_RECIPE_LINES}"


def stats_keys_missing():
    """The differences between the keys of the stats, with their order, and those that doc/protocol.md lists."""
    with open(os.path.join(ROOT, "doc/protocol.md"), encoding="utf-8") as file:
        sections = dict(re.findall(r"^### (stats\S*)\n(.*?)(?=^##|\Z)", file.read(), re.S | re.M))
    pid, port = with_server.start(SERVER)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as client:
            replies = client.makefile("rb")
            client.sendall(b"put 0 0 1 0\r\n\r\nstats\r\nstats-job 1\r\nstats-tube default\r\n")
            replies.readline()
            for command in ("stats", "stats-job", "stats-tube"):
                length = int(replies.readline().split()[1])
                data = replies.read(length + 2).decode()
                actual = re.findall(r"^(\S+): ", data, re.M)
                rows = re.findall(r"^\| (`.*?) \|", sections[command], re.M)
                documented = [key for row in rows for key in re.findall(r"`([^`]+)`", row)]
                if actual != documented:
                    wrong = set(actual) ^ set(documented) or "their order"
                    yield f"doc/protocol.md: the server has other keys of {command}: {wrong}"
    finally:
        with_server.stop(pid)


def metrics_missing():
    """The series that the alerts or the dashboard use and that the server does not have."""
    watched = {}
    for path in ("packaging/monitoring/alerts.yml", "packaging/monitoring/grafana-dashboard.json"):
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            watched.update((name, path) for name in re.findall(r"\b(?:beanstalkd|process)_\w+", file.read()))
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "metrics")
        pid, port = with_server.start(SERVER, ["--metrics", f"unix:{path}"])
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as client:
                # A tube has histograms once a job was reserved.
                client.sendall(b"put 0 0 1 0\r\n\r\nreserve\r\ndelete 1\r\n")
                replies = client.makefile("rb")
                assert [replies.readline() for _ in range(4)][-1] == b"DELETED\r\n"
            scrape = ""
            give_up_at = time.monotonic() + TIMEOUT_S
            while " 200 " not in scrape[:20] and time.monotonic() < give_up_at:  # until it is ready
                time.sleep(0.01)
                try:
                    with socket.socket(socket.AF_UNIX) as client:
                        client.settimeout(TIMEOUT_S)
                        client.connect(path)
                        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                        scrape = client.makefile().read()
                except (FileNotFoundError, ConnectionRefusedError):
                    pass
        finally:
            with_server.stop(pid)
    # doc/ha.md has the series of a database; a test of the server compares that table with its series.
    with open(os.path.join(ROOT, "doc/ha.md"), encoding="utf-8") as file:
        of_database = set(re.findall(r"^\| `(beanstalkd_store_\w+)` ", file.read(), re.M))
    for name in sorted(watched.keys() - set(re.findall(r"^\w+", scrape, re.M)) - of_database):
        yield f"{watched[name]}: there is no series {name}"


def dashboard_faults():
    """Panels of the dashboard that have the same id, or cover each other."""
    path = "packaging/monitoring/grafana-dashboard.json"
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    if len({panel["id"] for panel in panels}) < len(panels):
        yield f"{path}: two panels have the same id"
    places = [panel["gridPos"] for panel in panels]
    for place in places:
        if place["x"] + place["w"] > 24:
            yield f"{path}: {place} is wider than the page"
    for one, other in itertools.combinations(places, 2):
        if all(one[at] < other[at] + other[size] and other[at] < one[at] + one[size] for at, size in ("xw", "yh")):
            yield f"{path}: {one} and {other} cover each other"
