#!/bin/sh
# Checks the units: systemd accepts them, their exposure is low, both services have the same sandbox, and they name
# the server's exit codes. Checks also that packaging/allow-paths finds the paths that settings name. Needs
# systemd-analyze, but no running systemd.
set -eu
cd "$(dirname "$0")/../.."
. tests/packaging/common.sh
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# Takes the lines of the settings, and the expected exceptions in one line.
allows() {
    printf '%b' "$1" >"$root/settings"
    sh packaging/allow-paths "$root/settings" "$root/drop-in.d/paths.conf" >/dev/null
    given=$(cat "$root/drop-in.d/paths.conf" 2>/dev/null | sed '1,/^.Service/d' | tr '\n' ' ')
    [ "$given" = "$2" ] || fail "for $1, allow-paths writes \"$given\", expected \"$2\""
}
allows 'BEANSTALKD_EXTRA="-b /srv/jobs"\n' 'ReadWritePaths=-/srv/jobs '
allows "BEANSTALKD_EXTRA='-f0 -b/srv/jobs'\n" 'ReadWritePaths=-/srv/jobs '
allows 'BEANSTALKD_EXTRA=-VFb /srv/a%b -z 9\n' 'ReadWritePaths=-/srv/a%%b '
allows 'BEANSTALKD_EXTRA="-f 50 \\\n  --binlog=/srv/jobs"\n' 'ReadWritePaths=-/srv/jobs '
allows 'BEANSTALKD_EXTRA="--binlog /srv/x"\nBEANSTALKD_EXTRA="-b jobs"\n' 'ReadWritePaths=-/jobs '
allows 'BEANSTALKD_LISTEN_ADDR=unix:/tmp/q/socket\n' 'ReadWritePaths=-/tmp/q PrivateTmp=no '
allows 'BEANSTALKD_EXTRA="-b /home/q -l unix:/run/q/s --metrics unix:/run/m/s"\n' \
    'ReadWritePaths=-/home/q ReadWritePaths=-/run/m ReadWritePaths=-/run/q ProtectHome=read-only '
allows 'BEANSTALKD_EXTRA="-b postgresql://mail@db1,db2/jobs?queue=mail --wait-for-lock"\n' ''
allows 'BEANSTALKD_EXTRA="-b /srv/*"\n' 'ReadWritePaths=-/srv/* '
allows 'BEANSTALKD_LISTEN_ADDR=127.0.0.1\n#BEANSTALKD_EXTRA="-b /srv/jobs"\n' ''
[ ! -e "$root/drop-in.d" ] || fail "allow-paths writes a drop-in although no path needs one"
allows 'BEANSTALKD_EXTRA="-b /var/lib/beanstalkd/a -u b --listen 10.0.0.1 --listen unix:/run/beanstalkd/s"\n' ''
allows 'BEANSTALKD_EXTRA="-b /var/lib/beanstalkd/../x"\n' 'ReadWritePaths=-/var/lib/x '
allows 'BEANSTALKD_EXTRA="--binlog-dir /srv/x"\n' 'ReadWritePaths=-/srv/x '
allows "BEANSTALKD_EXTRA=\"-b '/srv/my jobs' -l unix:/srv/s/1\"\\n" \
    'ReadWritePaths="-/srv/my jobs" ReadWritePaths=-/srv/s '
allows "BEANSTALKD_EXTRA='-b \"/srv/my jobs\"'\\n" 'ReadWritePaths="-/srv/my jobs" '
rm "$root/settings"
sh packaging/allow-paths "$root/settings" "$root/drop-in.d/paths.conf"
[ ! -e "$root/drop-in.d" ] ||
    fail "allow-paths writes exceptions although there are no settings"

# The instances beanstalkd@PORT: each has separate settings, directories and a drop-in.
etc=$root/etc
mkdir -p "$etc/default"
echo 'BEANSTALKD_EXTRA="-b /srv/jobs"' >"$etc/default/beanstalkd"
echo 'BEANSTALKD_EXTRA="-b /srv/1"' >"$etc/default/beanstalkd-11301"
echo 'BEANSTALKD_EXTRA="-b /var/lib/beanstalkd/11302 -l unix:/run/beanstalkd-11302/s"' >"$etc/default/beanstalkd-11302"
echo 'BEANSTALKD_EXTRA="-b /var/lib/beanstalkd/jobs"' >"$etc/default/beanstalkd-11303"
echo 'BEANSTALKD_EXTRA="-b /srv/old"' >"$etc/default/beanstalkd-11301.dpkg-old"
exceptions() {
    DPKG_ROOT="$root" sh packaging/allow-paths >/dev/null
    (cd "$etc/systemd/system" && grep -r ^ReadWritePaths= . | sort | tr '\n' ' ')
}
expected='./beanstalkd.service.d/50-paths.conf:ReadWritePaths=-/srv/jobs'
expected="$expected ./beanstalkd@11301.service.d/50-paths.conf:ReadWritePaths=-/srv/1"
expected="$expected ./beanstalkd@11303.service.d/50-paths.conf:ReadWritePaths=-/var/lib/beanstalkd/jobs "
given=$(exceptions)
[ "$given" = "$expected" ] || fail "for the instances, allow-paths writes \"$given\", expected \"$expected\""
rm "$etc/default/beanstalkd-11301" "$etc/default/beanstalkd-11303"
given=$(exceptions)
[ "$given" = "${expected%% *} " ] ||
    fail "exceptions are left of instances without settings: $given"

for unit in beanstalkd.service beanstalkd@.service; do
    grep -q '^LimitCORE=0$' $unit ||
        fail "$unit has no LimitCORE=0, so the kernel may write the memory to a file"
done

command -v systemd-analyze >/dev/null || skip "there is no systemd-analyze"
worst=1.4 # of 10; what is left is mostly the network, which is what the server is for

# The units as installed, but with a program that exists, because systemd accepts no other.
make --silent --no-print-directory install DESTDIR="$root" PREFIX=/usr UNITDIR=/ BINARY=/bin/true
sed -i "s|/usr/bin/beanstalkd|/bin/true|" "$root"/beanstalkd*
cp "$root/beanstalkd@.service" "$root/beanstalkd@11301.service"
for unit in beanstalkd.service beanstalkd@11301.service beanstalkd.socket; do
    # It accepts what it does not know, but objects to it.
    objections=$(systemd-analyze verify --man=no --recursive-errors=no "$root/$unit" 2>&1) ||
        objections="$objections refused"
    [ -z "$objections" ] || fail "systemd objects to $unit: $objections"
done

for unit in beanstalkd.service beanstalkd@11301.service; do
    line=$(systemd-analyze security --offline=yes --no-pager "$root/$unit" | grep 'Overall exposure')
    exposure=$(echo "$line" | sed 's/.*: *\([0-9.]*\).*/\1/')
    echo "$test: $unit has an exposure of $exposure"
    awk "BEGIN { exit !($exposure <= $worst) }" || fail "an exposure above $worst is not accepted"
done

# From Type= on, both services are the same.
common() { sed -n '/^Type=/,$p' "$1"; }
common beanstalkd.service >"$root/one"
common beanstalkd@.service >"$root/each"
test -s "$root/one"
diff "$root/one" "$root/each"

code_of() { sed -n "s/^    $1 = \([0-9]*\),/\1/p" src/options/mod.rs; }
final="$(code_of Usage) $(code_of NoSuchUser) $(code_of BecomeUser) $(code_of BinlogDamaged)"
grep -qx "RestartPreventExitStatus=$final" beanstalkd.service
echo "$test: good"
