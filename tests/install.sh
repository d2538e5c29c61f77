#!/bin/sh
# Tests `make install` into an empty root: all files are there, settings of the administrator stay, the server
# starts with the command line of its unit and the settings of /etc/default, and `make uninstall` leaves the settings.
set -eu
cd "$(dirname "$0")/.."
if ! command -v nc >/dev/null; then
    echo "install: skipped, there is no nc" >&2
    exit 0
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() { echo "install: $1" >&2; exit 1; }
quietly() { make --silent --no-print-directory "$@" DESTDIR="$root" PREFIX=/usr BINARY="${BINARY:-target/debug/beanstalkd}"; }

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
echo "install: good"
