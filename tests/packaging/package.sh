#!/bin/bash
# Tests the package in a fresh Debian as doc/operations.md says: installs it, starts it with the command line and the
# settings of its unit as its user, puts a job, scrapes the metrics, stops, starts, reserves the job, does so once with
# TLS and access rules, and removes the package. This runs in a separate network namespace, so that ports are free.
# Needs root, debootstrap and Debian's archive. Run `make deb` first.
#
# ROOT names a bare Debian to reuse, SUITE the one to fetch, by default bookworm.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/packaging/common.sh
[ "$(id -u)" = 0 ] || skip "it needs root"
for tool in debootstrap unshare nsenter nc openssl; do
    command -v $tool >/dev/null || skip "there is no $tool"
done
packages=("${CARGO_TARGET_DIR:-target}"/debian/beanstalkd_*.deb)
if [ "${1:-}" != --inside ]; then
    exec unshare --mount --pid --mount-proc --fork --kill-child bash "$0" --inside
fi

root=${ROOT:-}
if [ -z "$root" ]; then
    root=$(mktemp -d)
    chmod 755 "$root" # it is the / of another user
    trap 'umount "$root/proc" || true; rm -rf --one-file-system "$root"' EXIT
    debootstrap --variant=minbase "${SUITE:-bookworm}" "$root" >/dev/null
fi
show() { echo "# $*" && "$@"; }

install -m 644 "${packages[0]}" "$root/tmp/beanstalkd.deb"
export DEBIAN_FRONTEND=noninteractive
get() { chroot "$root" apt-get -qq -o Dpkg::Use-Pty=0 -o APT::Sandbox::User=root "$@"; }
get update

# C's package, with a link in place of its directory; then ours, twice; then none; then ours.
link=$root/var/lib/beanstalkd
is_linked() {
    [ "$(readlink "$link")" = /srv/queue ] && [ -e "$root/srv/queue/binlog.1" ] || fail "the link is gone $1"
}
get install -y beanstalkd
[ -n "$(find "$root"/etc/rc?.d -name '*beanstalkd')" ] || fail "C's script for sysvinit is not linked"
rm -rf "$link" && install -d "$root/srv/queue" && ln -s /srv/queue "$link"
touch "$root/srv/queue/binlog.1"
for what in "from C's package" "once more"; do
    show get install -y --reinstall /tmp/beanstalkd.deb 2>&1 | tee "$root/tmp/output"
    grep -q 'unable to delete\|not empty' "$root/tmp/output" && fail "dpkg prints a warning at an upgrade $what"
    is_linked "after an upgrade $what"
done
chroot "$root" dpkg -S /var/lib/beanstalkd
[ -z "$(find "$root"/etc/rc?.d -name '*beanstalkd')" ] || fail "links of C's script for sysvinit stay"
mv "$root/srv/queue" "$root/srv/unmounted"
get install -y --reinstall /tmp/beanstalkd.deb >"$root/tmp/output" 2>&1 &&
    fail "an upgrade succeeds although the link /var/lib/beanstalkd has no target"
grep 'Mount or make that directory' "$root/tmp/output" ||
    fail "an upgrade fails without saying what to do about the link"
mv "$root/srv/unmounted" "$root/srv/queue"
is_linked "after an upgrade that failed"
chroot "$root" dpkg --remove beanstalkd
is_linked "after the removal"
get install -y /tmp/beanstalkd.deb && is_linked "after a new installation"
chroot "$root" dpkg --purge beanstalkd
is_linked "after the purge"
rm -rf "$link" "$root/srv/queue"

show get install -y /tmp/beanstalkd.deb
documents=$root/usr/share/doc/beanstalkd
links=$(zcat -f "$documents"/*.md "$documents"/changelog.gz |
    grep -o '](\(\.\./\)*[A-Za-z][A-Za-z0-9_/.-]*[)#]' | sed 's/..\(.*\)./\1/' | sort -u)
for target in $links; do
    [ -e "$documents/$target" ] || fail "a document has a link to $target, which is not installed"
done
chroot "$root" dpkg -s beanstalkd | grep -E '^(Status|Version):'
[ "$(stat -c %A "$root/var/lib/beanstalkd")" = drwxr-x--- ] || fail "other users may read the directory of the binlog"
echo 'BEANSTALKD_EXTRA="-b /var/lib/beanstalkd -f0 --metrics 127.0.0.1:11400"' >>"$root/etc/default/beanstalkd"

# What systemd makes of the unit: its variables, those of the administrator, its user, its command line.
unit=$root/lib/systemd/system/beanstalkd.service
of_unit() { sed -n "s/^$1=//p" "$unit"; }
user=$(of_unit User)
cat >"$root/tmp/start" <<END
set -a
$(of_unit Environment | tr ' ' '\n')
. $(of_unit EnvironmentFile | tr -d -)
set +a
exec setpriv --reuid=$user --regid=$(of_unit Group) --init-groups --no-new-privs $(of_unit ExecStart)
END
echo "# ExecStart=$(of_unit ExecStart)"

say() { nsenter --net="/proc/$namespace/ns/net" nc -q1 127.0.0.1 11300 | tr -d '\r'; }
scrape() {
    printf 'GET %s HTTP/1.0\r\n\r\n' "$1" | nsenter --net="/proc/$namespace/ns/net" nc 127.0.0.1 11400 | tr -d '\r'
}
is_ready() { scrape /readyz 2>/dev/null | head -n 1 | grep -q ' 200 '; }
start() {
    nsenter --net="/proc/$namespace/ns/net" chroot "$root" sh /tmp/start &
    server=$!
    soon is_ready || fail "the server does not become ready"
}
stop() {
    local code=0
    kill "$server"
    wait "$server" || code=$?
    echo "# SIGTERM: exit code $code"
    [ "$code" = 0 ] || fail "the server did not stop cleanly"
}
want() {
    echo "$2"
    [ "$2" = "$1" ] || fail "expected $1, found $2"
}

unshare --net sleep infinity & # keeps the namespace
namespace=$!
until [ "$(readlink "/proc/$namespace/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
nsenter --net="/proc/$namespace/ns/net" ip link set lo up
mount -t proc proc "$root/proc"

start
echo "# runs as $(chroot "$root" stat -c %U "/proc/$server")"
want "INSERTED 1
INSERTED 2" "$(printf 'put 0 0 60 5\r\nhello\r\nput 1 0 60 5\r\nworld\r\n' | say)"
want "RESERVED 1 5
hello
DELETED" "$(printf 'reserve\r\ndelete 1\r\n' | say)"
scrape /readyz
want "beanstalkd_current_jobs_ready 1
beanstalkd_binlog_records_written_total 4
beanstalkd_commands_total{command=\"put\"} 2" "$(scrape /metrics |
    grep -E '^beanstalkd_(current_jobs_ready |binlog_records_written_total |commands_total\{command="put"\})')"
stop
show ls -ln "$root/var/lib/beanstalkd"

start
want "RESERVED 2 5
world" "$(printf 'reserve-with-timeout 0\r\n' | say)"
stop

# Once more with TLS and access rules: with a token, a client may put; without, it may do nothing.
files=/etc/beanstalkd-guard
install -d -m 750 -g "$(chroot "$root" id -g "$user")" "$root$files"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE \
    -keyout "$root$files/key.pem" -out "$root$files/cert.pem" 2>/dev/null
openssl rand -hex 32 >"$root$files/token"
printf '[identities.team]\ntokens = ["%s"]\nproduce = ["mail"]\nobserve = ["mail"]\n' \
    "$(chroot "$root" beanstalkd --hash-token <"$root$files/token")" >"$root$files/access.toml"
chown -R "root:$(chroot "$root" id -g "$user")" "$root$files"
chmod 640 "$root$files"/*
show chroot "$root" beanstalkd --check-access "$files/access.toml" team
listener="--listen tls://127.0.0.1:11301 --tls-cert $files/cert.pem --tls-key $files/key.pem"
echo "BEANSTALKD_EXTRA=\"--metrics 127.0.0.1:11400 --access $files/access.toml $listener\"" \
    >>"$root/etc/default/beanstalkd"
ctl() {
    nsenter --net="/proc/$namespace/ns/net" chroot "$root" \
        beanstalkctl --server 127.0.0.1:11301 --tls --ca "$files/cert.pem" "$@"
}
start
show ctl --token-file "$files/token" put mail hello
ctl --token-file "$files/token" put other hello && fail "a put succeeds into a tube that the rules forbid"
ctl tubes && fail "an anonymous client sees tubes"
want FORBIDDEN "$(printf 'list-tubes\r\n' | say)"
stop

show chroot "$root" dpkg --purge beanstalkd 2>&1 | tail -n 1
[ -e "$root/var/lib/beanstalkd/lock" ] || fail "the purge has removed the jobs"
[ -z "$(find "$root/etc" -name '*beanstalkd' -not -path '*/default/*')" ] || fail "the purge leaves files in /etc"
kill "$namespace"
echo "package: good"
