#!/bin/sh
# Tests `make install` into an empty root: all files are there, settings of the administrator stay, the server
# starts with the command line of its unit and the settings of /etc/default, and `make uninstall` leaves the settings.
set -eu
cd "$(dirname "$0")/../.."
. tests/packaging/common.sh
command -v nc >/dev/null || skip "there is no nc"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
program=${BINARY:-target/debug/beanstalkd}
quietly() { make --silent --no-print-directory "$@" DESTDIR="$root" PREFIX=/usr BINARY="$program"; }

quietly install
for file in usr/bin/beanstalkd usr/share/man/man1/beanstalkd.1 etc/default/beanstalkd \
    etc/systemd/system/beanstalkd.service etc/systemd/system/beanstalkd@.service \
    etc/systemd/system/beanstalkd.socket; do
    [ -s "$root/$file" ] || fail "there is no $file"
done
size_of() { wc -c <"$1"; }
[ "$(size_of "$root/usr/bin/beanstalkd")" -lt "$(size_of "${BINARY:-target/debug/beanstalkd}")" ] ||
    fail "the program is installed with its symbols"

# shellcheck disable=SC1091
. "$root/etc/default/beanstalkd"
[ "$BEANSTALKD_LISTEN_ADDR:$BEANSTALKD_LISTEN_PORT" = 127.0.0.1:11300 ] ||
    fail "the installed defaults are not 127.0.0.1:11300"
for unit in beanstalkd.service beanstalkd@.service; do
    grep -q '^ExecStart=/usr/bin/beanstalkd -l ${BEANSTALKD_LISTEN_ADDR} -p ' "$root/etc/systemd/system/$unit" ||
        fail "ExecStart of $unit does not name the installed program"
done
# The command line of the unit with these settings. A unix socket needs no free port.
BEANSTALKD_LISTEN_ADDR=unix:$root/socket
BEANSTALKD_EXTRA="-z 1000"
command=$(sed -n 's/^ExecStart=//p' "$root/etc/systemd/system/beanstalkd.service")
eval "exec_line=\"$command\""
# shellcheck disable=SC2154
RUST_LOG=warn "$root"/${exec_line#/} &
server=$!
soon accepts "$root/socket" || fail "the server does not listen"
printf 'stats\r\nquit\r\n' | nc -w 60 -U "$root/socket" | grep -q '^max-job-size: 1000' ||
    fail "stats does not show the limit of BEANSTALKD_EXTRA"
kill $server
wait $server || fail "the server did not stop cleanly"

echo '# mine' >"$root/etc/default/beanstalkd"
quietly install
grep -q mine "$root/etc/default/beanstalkd" || fail "a second install has replaced /etc/default/beanstalkd"
quietly uninstall
[ "$(cd "$root" && find . -type f)" = ./etc/default/beanstalkd ] ||
    fail "uninstall must leave /etc/default/beanstalkd and no other file"

# A user without root's rights: programs and manual pages, and nothing elsewhere.
as_user() { make --silent --no-print-directory "$@" FOR_SYSTEM= UNITDIR="$root/units" BINARY="$program"; }
home=$root/home/.local
as_user install PREFIX="$home" >"$root/said"
[ -x "$home/bin/beanstalkd" ] && [ -s "$home/share/man/man1/beanstalkd.1" ] ||
    fail "an install without root lacks the program or its manual page"
[ ! -e "$root/units" ] || fail "an install without root has units"
grep -q "only root can install the units" "$root/said" || fail "no message says why there are no units"
as_user uninstall PREFIX="$home"
[ -z "$(find "$home" -type f)" ] || fail "uninstall without root leaves files"
touch "$root/file"
as_user install PREFIX="$root/file/local" 2>"$root/said" && fail "make install succeeds although PREFIX is below a file"
grep -q 'PREFIX=$HOME/.local' "$root/said" ||
    fail "the message has no advice for a user without root: $(cat "$root/said")"

[ "$(make --silent --no-print-directory help | grep -cx 'install\|check\|check-32bit\|fuzz')" = 4 ] ||
    fail "make help does not list install, check, check-32bit and fuzz"

# The health check of the image: open, guarded, guarded and full, full, a standby, one that hangs, none.
port=
started() { # OPTIONS...: starts a server on a port that nobody has, and waits for a line of its log
    rm -f "$root/log"
    RUST_LOG=info "${BINARY:-target/debug/beanstalkd}" -l 127.0.0.1 -p 0 "$@" 2>"$root/log" &
    server=$!
    says 'listening on\|standby: waiting' || fail "the server does not start: $(cat "$root/log")"
}
says() { # PATTERN: waits until the log has it, and notes the port if the log has that too
    soon grep -qs "$1" "$root/log" || return 1
    port=$(sed -n 's/.*listening on 127\.0\.0\.1:\([0-9]*\)$/\1/p' "$root/log")
}
healthy() { # The check gives a server two seconds, which a busy machine may miss.
    for _ in 1 2 3; do sh packaging/health-check "${port:-1}" "$server" && return; done
    return 1
}
unhealthy() { ! sh packaging/health-check "$port" "$server"; }
ended() { kill -KILL "$1"; wait "$1" 2>/dev/null || true; }
mkdir "$root/queue"
echo '[identities.team]' >"$root/access.toml"
started
healthy || fail "the health check fails for a server without access rules"
kill -STOP "$server"
unhealthy || fail "the health check succeeds for a server that hangs"
ended "$server"
unhealthy || fail "the health check succeeds without a server"
started --access "$root/access.toml"
healthy || fail "the health check fails for a server with access rules"
ended "$server"
printf '[strangers]\nmax-connections = 1\n' >"$root/full.toml"
mkfifo "$root/input"
full() { # REPLY OPTIONS...: a server with these options is healthy with its only client, and so answers another
    reply=$1
    shift
    started "$@"
    rm -f "$root/answer"
    nc 127.0.0.1 "$port" <"$root/input" >"$root/answer" 2>/dev/null &
    client=$!
    exec 9>"$root/input"
    printf 'list-tube-used\r\n' >&9
    soon [ -s "$root/answer" ] || fail "the only client has no answer with $*"
    answer=$(printf 'stats\r\n' | nc -w 60 127.0.0.1 "$port" 2>/dev/null | tr -d '\r') || true
    [ "$answer" = "$reply" ] || fail "the server answers another client with '$answer', with $*"
    healthy || fail "the health check fails for a server that is full with $*"
    exec 9>&-
    ended "$server"
    wait "$client" || true
}
full TOO_MANY_CONNECTIONS --access "$root/full.toml"
full '' --max-connections 1
"${BINARY:-target/debug/beanstalkd}" -l "unix:$root/active" -b "$root/queue" 2>/dev/null &
active=$!
soon accepts "$root/active" || fail "the server with the lock does not listen"
started -b "$root/queue" --wait-for-lock
healthy || fail "the health check fails for a standby"
ended "$active"
says 'listening on' || fail "the standby does not take over"
healthy || fail "the health check fails for a standby that has taken over"
kill -STOP "$server"
unhealthy || fail "the health check succeeds for a standby that has taken over and hangs"
ended "$server"
echo "$test: good"
