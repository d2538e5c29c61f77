.PHONY: all check
all:
	cargo build --release
check:
	cargo fmt --all --check
	cargo clippy --all-targets -- -D warnings
	cargo test
