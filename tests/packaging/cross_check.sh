#!/bin/sh
# Checks that the server compiles for other machines, and its tests for other systems: runs `cargo check` for each
# target, without its C compiler. A stub replaces the compiler of mimalloc; that makes no difference, because a check
# links nothing.
set -eu

targets=${TARGETS:-"i686-unknown-linux-gnu armv7-unknown-linux-gnueabihf aarch64-unknown-linux-gnu
	aarch64-unknown-linux-musl x86_64-unknown-linux-musl x86_64-apple-darwin aarch64-apple-darwin
	x86_64-unknown-freebsd x86_64-unknown-netbsd x86_64-unknown-illumos"}
# For these targets the tests are checked, too, because their system differs and not only their processor.
with_tests=" x86_64-apple-darwin x86_64-unknown-freebsd "
stub=$(mktemp -d)
trap 'rm -rf "$stub"' EXIT
cat >"$stub/cc" <<'STUB'
#!/bin/sh
for argument; do
	case ${before-} in -o) : >"$argument" ;; esac
	before=$argument
done
STUB
chmod +x "$stub/cc"
failed='' skipped=''
for target in $targets; do
	case $with_tests in
	*" $target "*) tests=--tests what="compiles, and so do its tests" ;;
	*) tests='' what=compiles ;;
	esac
	if ! rustup target add "$target" >/dev/null 2>&1; then
		echo "$target: skipped, rustup has no standard library for it here"
		skipped="$skipped $target"
	elif CC="$stub/cc" AR=true ${CARGO:-cargo} check --locked --quiet $tests --target "$target" \
		--target-dir target/cross; then
		echo "$target: $what"
	else
		failed="$failed $target"
	fi
done
[ -z "$failed" ] || { echo "does not compile:$failed" >&2; exit 1; }
[ -z "${CI:-}" ] || [ -z "$skipped" ] || { echo "CI is set, but skipped:$skipped" >&2; exit 1; }
