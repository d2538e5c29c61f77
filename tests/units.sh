#!/bin/sh
# Holds the units to their promises: systemd accepts them, their exposure is low, both services are
# confined alike, and they name the exit codes that the server has. Needs systemd-analyze, no systemd.
set -eu
cd "$(dirname "$0")/.."
if ! command -v systemd-analyze >/dev/null; then
    echo "units: skipped, there is no systemd-analyze" >&2
    exit 0
fi
worst=1.4 # of 10; what is left is mostly the network, which is what the server is for
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# As installed, but for the program: it must exist to be accepted.
for unit in beanstalkd.service beanstalkd@.service beanstalkd.socket; do
    sed "s|/usr/bin/beanstalkd|/bin/true|" "$unit" >"$root/$unit"
done
cp "$root/beanstalkd@.service" "$root/beanstalkd@11301.service"
for unit in beanstalkd.service beanstalkd@11301.service beanstalkd.socket; do
    systemd-analyze verify --man=no --recursive-errors=no "$root/$unit"
done

for unit in beanstalkd.service beanstalkd@11301.service; do
    line=$(systemd-analyze security --offline=yes --no-pager "$root/$unit" | grep 'Overall exposure')
    exposure=$(echo "$line" | sed 's/.*: *\([0-9.]*\).*/\1/')
    echo "units: $unit has an exposure of $exposure"
    if ! awk "BEGIN { exit !($exposure <= $worst) }"; then
        echo "units: that is more than $worst" >&2
        exit 1
    fi
done

# From the first comment of [Service] on, both services are the same.
common() { sed -n '/^# Ready means/,$p' "$1"; }
common beanstalkd.service >"$root/one"
common beanstalkd@.service >"$root/each"
test -s "$root/one"
diff "$root/one" "$root/each"

code_of() { sed -n "s/.*pub const $1: i32 = \([0-9]*\);/\1/p" src/options.rs; }
grep -qx "RestartPreventExitStatus=$(code_of USAGE) $(code_of BINLOG_DAMAGED)" beanstalkd.service
echo "units: good"
