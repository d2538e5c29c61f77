#!/bin/sh
# Tests `make install` into an empty root: all files are there, settings of the administrator stay, the server
# starts with the command line of its unit and the settings of /etc/default, and `make uninstall` leaves the settings.
set -eu
cd "$(dirname "$0")/../.."
if ! command -v nc >/dev/null; then
    echo "install: skipped, there is no nc" >&2
    [ -z "${CI:-}" ] || exit 1
    exit 0
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() { echo "install: $1" >&2; exit 1; }
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
[ "$BEANSTALKD_LISTEN_ADDR:$BEANSTALKD_LISTEN_PORT" = 127.0.0.1:11300 ] || fail "other defaults"
for unit in beanstalkd.service beanstalkd@.service; do
    grep -q '^ExecStart=/usr/bin/beanstalkd -l ${BEANSTALKD_LISTEN_ADDR} -p ' "$root/etc/systemd/system/$unit" ||
        fail "$unit does not start what was installed"
done
# The unit's own words, with the settings in them, on a unix socket for want of a free port.
BEANSTALKD_LISTEN_ADDR=unix:$root/socket
BEANSTALKD_EXTRA="-z 1000"
command=$(sed -n 's/^ExecStart=//p' "$root/etc/systemd/system/beanstalkd.service")
eval "exec_line=\"$command\""
# shellcheck disable=SC2154
RUST_LOG=warn "$root"/${exec_line#/} &
server=$!
tries=500
until [ -S "$root/socket" ]; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || fail "the server does not come up"
    sleep 0.01
done
printf 'stats\r\n' | nc -q1 -U "$root/socket" | grep -q '^max-job-size: 1000' || fail "no answer"
kill $server
wait $server || fail "the server did not stop cleanly"

echo '# mine' >"$root/etc/default/beanstalkd"
quietly install
grep -q mine "$root/etc/default/beanstalkd" || fail "what the administrator wrote is gone"
quietly uninstall
[ "$(cd "$root" && find . -type f)" = ./etc/default/beanstalkd ] || fail "uninstall left or took too much"

# A user without root's rights: programs and manual pages, and nothing elsewhere.
as_user() { make --silent --no-print-directory "$@" FOR_SYSTEM= UNITDIR="$root/units" BINARY="$program"; }
home=$root/home/.local
as_user install PREFIX="$home" >"$root/said"
[ -x "$home/bin/beanstalkd" ] && [ -s "$home/share/man/man1/beanstalkd.1" ] || fail "a user has not got the program"
[ ! -e "$root/units" ] || fail "a user gets units, which are for root"
grep -q "only root can install the units" "$root/said" || fail "nobody says why there are no units"
as_user uninstall PREFIX="$home"
[ -z "$(find "$home" -type f)" ] || fail "a user cannot uninstall"
touch "$root/file"
as_user install PREFIX="$root/file/local" 2>"$root/said" && fail "installed into a file"
grep -q 'PREFIX=$HOME/.local' "$root/said" || fail "no advice for a user who may not write there: $(cat "$root/said")"

[ "$(make --silent --no-print-directory help | grep -cx 'install\|check\|check-32bit\|fuzz')" = 4 ] ||
    fail "make help lacks targets"

# The health check of the image: open, guarded, a standby, one that hangs, none.
port=
started() { # OPTIONS...: starts a server on a port that nobody has, and waits for a line of its log
    rm -f "$root/log"
    RUST_LOG=info "${BINARY:-target/debug/beanstalkd}" -l 127.0.0.1 -p 0 "$@" 2>"$root/log" &
    server=$!
    says 'listening on\|standby: waiting' || fail "the server does not come up: $(cat "$root/log")"
}
says() { # PATTERN: waits until the log has it, and notes the port if the log has that too
    tries=500
    until grep -q "$1" "$root/log" 2>/dev/null; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.01
    done
    port=$(sed -n 's/.*listening on 127\.0\.0\.1:\([0-9]*\)$/\1/p' "$root/log")
}
healthy() { sh packaging/health-check "${port:-1}" "$server"; }
unhealthy() { ! sh packaging/health-check "$port" "$server"; }
ended() { kill -KILL "$1"; wait "$1" 2>/dev/null || true; }
mkdir "$root/queue"
echo '[identities.team]' >"$root/access.toml"
started
healthy || fail "an open server is not healthy"
kill -STOP "$server"
unhealthy || fail "a server that hangs is healthy"
ended "$server"
unhealthy || fail "no server is healthy"
started --access "$root/access.toml"
healthy || fail "a server with access rules is not healthy"
ended "$server"
"${BINARY:-target/debug/beanstalkd}" -l "unix:$root/active" -b "$root/queue" 2>/dev/null &
active=$!
until [ -S "$root/active" ]; do sleep 0.01; done
started -b "$root/queue" --wait-for-lock
healthy || fail "a standby is not healthy"
ended "$active"
says 'listening on' || fail "no takeover"
healthy || fail "a standby that has taken over is not healthy"
kill -STOP "$server"
unhealthy || fail "a standby that has taken over and hangs is healthy"
ended "$server"
echo "install: good"
