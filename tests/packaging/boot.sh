#!/bin/bash
# Tests the package under a real systemd: boots a fresh Debian in a container without a network, and runs
# tests/packaging/boot/inside.sh in it, which lists the checks. Run `make deb` first. Needs root, systemd-nspawn,
# debootstrap, and Debian's archive the first time. The bare Debian is kept in target/boot.
#
# ROOT names a bare Debian to use, SUITE the one to fetch, by default bookworm; PACKAGE another package to judge.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/packaging/common.sh
[ "$(id -u)" = 0 ] || skip "it needs root"
for tool in systemd-nspawn debootstrap unshare openssl; do
    command -v $tool >/dev/null || skip "there is no $tool"
done
if [ "${1:-}" != --mounts-apart ]; then
    exec unshare --mount bash "$0" --mounts-apart
fi
package=${PACKAGE:-$(ls "${CARGO_TARGET_DIR:-target}"/debian/beanstalkd_*.deb)}
bare=${ROOT:-$PWD/target/boot/${SUITE:-bookworm}}
needed=systemd,systemd-sysv,dbus,netcat-openbsd,init-system-helpers,adduser
if [ ! -d "$bare" ]; then
    rm -rf --one-file-system "$bare.partial"
    mkdir -p "$bare.partial"
    debootstrap --variant=minbase --include=$needed "${SUITE:-bookworm}" "$bare.partial" >"$bare.log" || {
        tail "$bare.log" >&2
        exit 1
    }
    # C's package, and what it depends on: the machine has no network.
    chroot "$bare.partial" sh -ec 'cd /opt
        get() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 "$@"; }
        get download beanstalkd
        get satisfy -y "$(dpkg-deb -f beanstalkd_*.deb Depends)"' >>"$bare.log"
    mv "$bare.partial" "$bare"
fi

# Written to a layer above it.
work=$(mktemp -d "$PWD/target/boot/run.XXXXXX")
chmod 755 "$work"
name=beanstalkd-boot-${work##*.}
machine="" following=""
finish() {
    # The first signal shuts the machine down, the second ends it at once.
    if [ -n "$machine" ] && kill -TERM "$machine" 2>/dev/null; then
        for _ in $(seq 100); do kill -0 "$machine" 2>/dev/null || break; sleep 0.1; done
        kill -TERM "$machine" 2>/dev/null || true
        wait "$machine" || true
    fi
    [ -z "$following" ] || kill "$following" 2>/dev/null || true
    rmdir "/run/systemd/nspawn/propagate/$name" 2>/dev/null || true
    umount "$work/machine" || true
    rm -rf --one-file-system "$work"
}
trap finish EXIT
mkdir "$work"/{upper,scratch,machine,report}
mount -t overlay -o "lowerdir=$bare,upperdir=$work/upper,workdir=$work/scratch" overlay "$work/machine" ||
    skip "there is no overlayfs"
chmod 755 "$work/machine"
mv "$work"/machine/opt/beanstalkd_*.deb "$work/machine/opt/c.deb"
install -m 644 "$package" "$work/machine/opt/ours.deb"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE \
    -keyout "$work/machine/opt/key.pem" -out "$work/machine/opt/cert.pem" 2>/dev/null
install -m 755 tests/packaging/boot/inside.sh "$work/machine/opt/inside.sh"
install -m 644 tests/packaging/boot/test.service "$work/machine/etc/systemd/system/boot-test.service"
ln -s ../boot-test.service "$work/machine/etc/systemd/system/multi-user.target.wants/boot-test.service"

options=(--quiet --directory="$work/machine" --machine="$name" --private-network --register=no
    --bind="$work/report:/opt/report" --console=pipe --boot)
[ -d /run/systemd/system ] || options+=(--keep-unit) # nobody to ask for a unit
boot() { systemd-nspawn "${options[@]}" </dev/null >>"$work/console" 2>&1 & machine=$!; }
runs() { kill -0 "$machine" 2>/dev/null; }
wait_for_report() { # NAME SECONDS: until the machine has written it, or has ended
    for _ in $(seq "${2}0"); do
        if [ -s "$work/report/$1" ] || ! runs; then return; fi
        sleep 0.1
    done
}
touch "$work/report/output"
boot
wait_for_report output 60
if [ ! -s "$work/report/output" ]; then
    tail "$work/console" >&2
    skip "systemd-nspawn cannot boot a machine here"
fi
tail -n +1 -f "$work/report/output" &
following=$!
wait_for_report result 600
code=0
runs || wait "$machine" || code=$?
if [ $code = 133 ]; then # it reboots, and --keep-unit leaves that to us
    boot
    wait_for_report result 600
fi
sleep 0.2 # for the last lines
if [ "$(cat "$work/report/result" 2>/dev/null)" != good ]; then
    tail "$work/console" >&2
    echo "boot: $(cat "$work/report/result" 2>/dev/null || echo "the machine did not shut down")" >&2
    exit 1
fi
echo "boot: good"
