#!/bin/sh
# What the Debian package does with a server that runs when it is upgraded: the function of its postinst, with commands
# of this test in place of systemd's, and a real server. The argument is the program; needs dpkg.
set -eu
cd "$(dirname "$0")/../.."
. tests/packaging/common.sh
program=$(realpath "${1:?the program}")
command -v dpkg >/dev/null || skip "there is no dpkg"
root=$(mktemp -d)
server=""
clean_up() {
    code=$?
    if [ $code != 0 ] && [ -e "$root/log" ]; then cat "$root/log" >&2; fi
    [ -z "$server" ] || kill -9 "$server" 2>/dev/null || true
    rm -rf "$root"
}
trap clean_up EXIT

mkdir "$root/bin"
cat >"$root/bin/systemctl" <<END
#!/bin/sh
case "\$*" in
"show -p MainPID --value "*) cat "$root/pid" ;;
"show -p StatusText --value "*) cat "$root/status" ;;
"reload "*) kill -HUP "\$(cat "$root/pid")" ;;
*) exit 1 ;;
esac
END
printf '#!/bin/sh\necho "$@" >>%s/invoked\n' "$root" >"$root/bin/deb-systemd-invoke"
chmod +x "$root"/bin/*
PATH=$root/bin:$PATH
# A server that takes over has a minute. For one that does not, the test waits no longer than it must.
tenths=600
changed="s/seq 150/seq \$tenths/; s|/usr/sbin/policy-rc.d|$root/policy|g"
eval "$(sed -n '/^upgrade()/,/^}/p' packaging/debian/postinst | sed "$changed")"

replace() { cp "${1:-$program}" "$root/next" && chmod +x "$root/next" && mv "$root/next" "$root/beanstalkd"; }
expect() { # WHAT INVOKED SAID OLD-VERSION
    : >"$root/invoked"
    upgrade beanstalkd.service "$4" >"$root/said" 2>&1 || fail "$1: the function fails"
    [ "$(cat "$root/invoked")" = "$2" ] || fail "$1: ran \"$(cat "$root/invoked")\", expected \"$2\""
    [ -z "$3" ] || grep -q "$3" "$root/said" || fail "$1: printed \"$(cat "$root/said")\", expected \"$3\""
}

echo 0 >"$root/pid"
echo "" >"$root/status"
expect "a service that does not run" "restart beanstalkd.service" "" 2.0.0-1

replace
printf '[[tube]]\nname = "full"\nmax-jobs = 1\n' >"$root/tubes"
"$root/beanstalkd" -l "unix:$root/socket" --tubes "$root/tubes" 2>"$root/log" &
server=$!
echo $server >"$root/pid"
soon grep -qs "listening on" "$root/log" || fail "the server does not listen"
replace
expect "C's server" "restart beanstalkd.service" "version 1.13-1 cannot" 1.13-1
echo "standby: waiting" >"$root/status"
expect "a standby" "restart beanstalkd.service" "a standby" 2.0.0-1
echo "serving" >"$root/status"
printf '#!/bin/sh\nexit 101\n' >"$root/policy" && chmod +x "$root/policy"
expect "a machine whose policy forbids it" "" "" 2.0.0-1
grep -q "SIGHUP" "$root/log" && fail "the server got SIGHUP although the policy forbids a restart"
rm "$root/policy"
expect "a server that runs" "" "" 2.0.0-1
[ "$(readlink "/proc/$server/exe")" = "$root/beanstalkd" ] || fail "the new program does not run"
printf '#!/bin/sh\nexit 1\n' >"$root/broken"
replace "$root/broken"
tenths=40
expect "a program that is not fit" "" "serving" 2.0.0-1
grep -q "still runs its earlier program" "$root/said" || fail "no message says that the earlier program runs"
kill -0 $server || fail "the server has ended after a program that is not fit"
echo "$test: good"
