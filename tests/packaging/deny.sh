#!/bin/sh
# Checks the licences, the sources and the known faults of the dependencies, with cargo-deny. Says what was not checked:
# everything if there is no cargo-deny, and the known faults if their database, a git repository, cannot be reached and
# was never fetched before. Only the first is a failure if CI is set: the network of CI may not reach that repository.
set -eu
cd "$(dirname "$0")/../.."
. tests/packaging/common.sh
: "${CARGO:=cargo}"
if ! $CARGO deny --version >/dev/null 2>&1; then
    skip "cargo-deny is not installed (cargo install cargo-deny): dependencies were not checked"
fi
$CARGO deny --locked --all-features check licenses bans sources
output=$(mktemp)
trap 'rm -f "$output"' EXIT
faults() { $CARGO deny "$@" --all-features check advisories >"$output" 2>&1; }
if faults --locked; then
    cat "$output"
elif ! grep -q 'failed to fetch advisory database' "$output"; then
    cat "$output" >&2
    exit 1
elif faults --locked --offline; then
    echo "deny: the database of known faults cannot be reached; the copy of the last run was used" >&2
elif grep -qE "failed to (get 'FETCH_HEAD'|load advisory)" "$output"; then
    echo "deny: the database of known faults cannot be reached: known faults were not checked" >&2
else
    cat "$output" >&2
    exit 1
fi
