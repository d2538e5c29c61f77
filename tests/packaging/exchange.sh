#!/bin/sh
# Tests the upgrade of doc/operations.md and the way back: C, this server, and C again use one directory, with a
# client that notices only the restarts. PEER names the C server, by default Debian's.
set -eu
cd "$(dirname "$0")/../.."
. tests/packaging/common.sh
peer=${PEER:-/usr/bin/beanstalkd}
ours=${BEANSTALKD:-target/debug/beanstalkd}
[ -x "$peer" ] || skip "there is no $peer"
command -v nc >/dev/null || skip "there is no nc"
root=$(mktemp -d)
server=
finish() {
    if [ -n "$server" ]; then kill -9 "$server" 2>/dev/null || true; fi
    rm -rf "$root"
}
trap finish EXIT

start() {
    rm -f "$root/socket"
    mkdir -p "$root/jobs"
    RUST_LOG=warn "$1" -l "unix:$root/socket" -b "$root/jobs" -f0 &
    server=$!
    soon accepts "$root/socket" || fail "$1 does not listen"
}

stop() {
    kill "$server"
    { wait "$server" || true; } 2>/dev/null # C ends by the signal
    server=
}

# The replies of the server to these lines, of which some are bodies.
say() { printf '%s\r\n' "$@" quit | nc -w 60 -U "$root/socket" | tr -d '\r'; }

# Sends the lines and requires the reply $1.
expect() {
    expected=$1
    shift
    actual=$(say "$@")
    [ "$actual" = "$expected" ] || fail "expected: $expected
actual: $actual"
}

state_of() { say "stats-job $1" | sed -n 's/^state: //p; s/^pri: //p; s/^tube: "*\([a-z]*\)"*/\1/p' | tr '\n' ' '; }

start "$peer"
expect "USING mail
INSERTED 1
INSERTED 2
INSERTED 3
RESERVED 1 3
one
BURIED" "use mail" "put 10 0 60 3" one "put 20 3600 60 3" two "put 30 0 60 5" three "reserve-job 1" "bury 1 11"
before="$(state_of 1)$(state_of 2)$(state_of 3)"
stop

$ours --check "$root/jobs" >/dev/null || fail "--check refuses the files of C"
start "$ours"
[ "$(state_of 1)$(state_of 2)$(state_of 3)" = "$before" ] || fail "the jobs of C changed at the upgrade"
expect "DELETED
USING mail
INSERTED 4
KICKED" "delete 3" "use mail" "put 40 0 60 4" four "kick-job 1"
before="$(state_of 1)$(state_of 2)$(state_of 4)"
stop
$ours --check "$root/jobs" >/dev/null || fail "--check refuses the files of this server"

start "$peer"
[ "$(state_of 1)$(state_of 2)$(state_of 4)" = "$before" ] || fail "the jobs of this server changed at the downgrade"
expect NOT_FOUND "peek 3"
expect "FOUND 4 4
four" "peek 4"
stop
echo "$test: good"
