#!/bin/sh
# Makes the packages of the client library and of the two crates below it, as `cargo publish` would send them to the
# registry, and builds each from its package alone, against the packages of the others. Nothing is sent.
set -eu
cd "$(dirname "$0")/../.."
. tests/packaging/common.sh
: "${CARGO:=cargo}"
packages="-p beanstalkd-types -p beanstalkd-protocol -p beanstalk-client" # in the order in which they are published
minor=$($CARGO --version | sed 's/^cargo [0-9]*\.\([0-9]*\).*/\1/')
[ "$minor" -ge 90 ] || skip "cargo publishes several packages at once from 1.90 on, and this is 1.$minor"
# cargo would build the packages that an earlier run has unpacked from its local registry, although they have changed.
rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/src/-*/beanstalk*
# shellcheck disable=SC2086
$CARGO publish --quiet --dry-run --locked --allow-dirty --target-dir target/publish $packages
