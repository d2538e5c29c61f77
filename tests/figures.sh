#!/bin/sh
# Measures the server and writes doc/figures.md: `make figures`. Takes about an hour, in which nothing else may run on
# the machine. QUICK=1 makes short rounds, ROWS=word,word measures only these sections of the benchmark, and MINUTES is
# the length of the soak: for trials of this command.
set -eu
cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
outputs=target/figures
commit=$(git describe --always --dirty) # before this page is written

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
    CARGO_TARGET_DIR=$outputs/target $CARGO build --release --locked && echo $(($(date +%s) - started))
}

rm -rf "$outputs"
mkdir -p "$outputs"
$CARGO fetch --locked
step build build_seconds
touch crates/queue/src/lib.rs
step rebuild build_seconds
program_bytes=$(stat -c %s "$outputs/target/release/beanstalkd")
rm -rf "$outputs/target"
step jobs $CARGO test --locked --workspace --test queue_bytes -- --nocapture --test-threads 1
step bench $CARGO bench --locked --bench bench -- ${QUICK:+--quick} ${ROWS:+--rows "$ROWS"}
step structures $CARGO bench --locked --bench structures
step soak env SOAK_MINUTES="${MINUTES:-15}" \
    $CARGO test --locked --workspace --release --test soak -- --nocapture

cat >doc/figures.md <<END
# The figures of one day

\`make figures\` wrote this page on $(date -u +%F), for the commit $commit.
[performance.md](performance.md) says how the figures are obtained, and why some targets are missed.

## Benchmark

${ROWS:+$(echo "These are only the sections of the benchmark whose names contain one of these words: $ROWS." |
    sed 's/,/, /g' | fold -s -w 118)

}$(cat "$outputs/bench")

## The queue's own structures

$(cat "$outputs/structures")

## Memory of a job

The memory that the queue allocates for a job, and the memory that it counts for \`--max-memory\`
(\`tests/queue_bytes.rs\`):

$(sed -n 's/^test .* \.\.\. //; /bytes for a job/s/^/- /p' "$outputs/jobs")

## Soak

\`make soak\` ([testing.md](testing.md#soak)). Only a run of 15 minutes or more says whether memory grows:

\`\`\`text
$(grep -v -e '^test ' -e '^running ' -e '^$' "$outputs/soak" | tail -8)
\`\`\`

## Build

- A fresh release build of the server: $(cat "$outputs/build") s. One after a change in \`crates/queue\`:
  $(cat "$outputs/rebuild") s.
- The program: $program_bytes bytes.
END
