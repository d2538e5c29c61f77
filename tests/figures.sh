#!/bin/sh
# Measures the server and writes doc/figures.md: `make figures`. Nothing else may run on the machine for about an hour.
# QUICK=1 runs short rounds, to try the command itself; MINUTES is the length of the soak.
set -eu
cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
outputs=target/figures

# Runs a command and keeps its output: step NAME COMMAND…
step() {
    name=$1
    shift
    echo "figures: $name" >&2
    if ! "$@" >"$outputs/$name" 2>"$outputs/$name.errors"; then
        echo "figures: $name failed: $outputs/$name.errors" >&2
        exit 1
    fi
}

# Builds the server in a directory of its own, and prints the seconds.
build_seconds() {
    started=$(date +%s)
    CARGO_TARGET_DIR=$outputs/build $CARGO build --release --locked
    echo $(($(date +%s) - started))
}

rm -rf "$outputs"
mkdir -p "$outputs"
$CARGO fetch --locked
step fresh build_seconds
touch crates/queue/src/lib.rs
step rebuilt build_seconds
step bench $CARGO bench --locked --bench bench -- ${QUICK:+--quick}
step micro $CARGO bench --locked --bench micro
step structures $CARGO bench --locked --bench structures
step jobs $CARGO test --locked --test queue_bytes -- --nocapture --test-threads 1
step soak env SOAK_MINUTES="${MINUTES:-15}" $CARGO test --locked --release --test soak -- --nocapture

cat >doc/figures.md <<END
# Figures of one day

\`make figures\` has written this page on $(date -u +%F), for commit $(git describe --always --dirty).
[performance.md](performance.md) says how each row of \`make bench\` is obtained and what follows from the figures;
[testing.md](testing.md) describes the soak.

## \`make bench\`

$(cat "$outputs/bench")

## \`make micro\`

\`\`\`text
$(cat "$outputs/micro")
\`\`\`

$(cat "$outputs/structures")

## Memory of jobs and tubes

The memory that the queue allocates and the memory that it counts for \`--max-memory\`
(\`cargo test --test queue_bytes -- --nocapture\`):

$(grep bytes "$outputs/jobs" | sed 's/^/- /')

## Soak

\`\`\`text
$(grep -v -e '^test ' -e '^running ' -e '^$' "$outputs/soak" | tail -8)
\`\`\`

## Build

A fresh release build of the server took $(cat "$outputs/fresh") s, and one after a change in \`crates/queue\`
$(cat "$outputs/rebuilt") s. The program has $(stat -c %s "$outputs/build/release/beanstalkd") bytes.
END
rm -rf "$outputs/build"
