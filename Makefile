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

.PHONY: simulation model fuzz
# SEEDS=number, by default a million; SEED=n replays one and tells every step.
simulation:
	$(if $(SEED),SEED=$(SEED)) SIMULATION_SEEDS=$(or $(SEEDS),1000000) cargo test --test simulation -- --nocapture

# CASES=number, by default a million; SEED=n replays one.
model:
	$(if $(SEED),SEED=$(SEED)) MODEL_CASES=$(or $(CASES),1000000) cargo test --test model -- --nocapture

# TARGET=command_line, byte_stream or operations, for SECONDS; needs cargo-fuzz, but no nightly compiler.
fuzz:
	cargo fuzz run -s none $(TARGET) -- -dict=fuzz/protocol.dict -max_total_time=$(or $(SECONDS),60)
