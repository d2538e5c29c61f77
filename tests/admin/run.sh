#!/bin/sh
# Compares the API with its description, also by requests that a program makes from it, and uses the page in a browser.
# A part whose tools cannot be installed is skipped with a message. If CI is set, that fails.
set -eu
cd "$(dirname "$0")/../.."
here=tests/admin
kept=target/admin # what was fetched, so that the next run needs no network
missing=0

skip() {
    echo "admin: skipped $1" >&2
    missing=1
}

if ! command -v python3 >/dev/null; then
    skip "all: there is no python3"
elif ! { python3 -m venv $kept/python >/dev/null 2>&1 \
    && $kept/python/bin/pip install --quiet --disable-pip-version-check -r $here/requirements.txt; }; then
    skip "all: the packages of $here/requirements.txt cannot be installed"
else
    $kept/python/bin/python $here/api.py
    $kept/python/bin/python $here/fuzz.py
    if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then
        $kept/python/bin/python $here/page.py
    else
        skip "the page: there is no chromium with chromedriver"
    fi
fi

if [ $missing = 1 ] && [ -n "${CI:-}" ]; then
    echo "admin: CI is set, so no part may be skipped" >&2
    exit 1
fi
