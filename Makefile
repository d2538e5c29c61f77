.PHONY: all check bench micro
all:
	cargo build --release
check:
	cargo fmt --all --check
	cargo clippy --all-targets -- -D warnings
	cargo test
# PEER=path of another server (default: Debian's), ROWS=word,word to measure a part, QUICK=1 for a rough run.
bench:
	cargo bench --bench bench -- $(PEER:%=--peer %) $(ROWS:%=--rows '%') $(QUICK:%=--quick)

# The pure parts alone; BENCH_LARGE=1 adds 10 million jobs.
micro:
	cargo bench --bench micro
