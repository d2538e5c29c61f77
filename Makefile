# `make` builds, `make check` holds everything to its tests, `make install` puts it in place.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# Where systemd looks for units of the administrator; packages say /lib/systemd/system.
UNITDIR ?= /etc/systemd/system
BINARY ?= target/release/beanstalkd

.PHONY: all check server clients docs units install-check exchange conformance differential model simulation \
	kill-loop interchange soak fuzz deny survive bench micro install uninstall deb package-check clean

all:
	$(CARGO) build --release --locked

# The one entry, for people and for CI.
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps
	$(CARGO) build --locked
	$(CARGO) test --locked
	$(MAKE) clients units install-check exchange docs

# The clients from the registries, each of their methods.
clients: server
	sh tests/clients/run.sh

# The commands and programs that the documentation shows.
docs: server
	python3 tests/docs/run.py

# The tests of survival on a bad day: ten thousand clients, a hundred thousand connections cut at any byte.
survive:
	SURVIVE_SENDERS=5000 SURVIVE_CLOSINGS=100000 $(CARGO) test --locked --release --test survive --test faults

# Everything at once for MINUTES, by default 30, at RATE commands per second: nothing is lost, nothing leaks.
soak:
	SOAK_MINUTES=$(or $(MINUTES),30) $(if $(RATE),SOAK_RATE=$(RATE)) \
		$(CARGO) test --locked --release --test soak -- --nocapture

units:
	sh tests/units.sh

# Licenses, sources, known faults of what comes in with dependencies (`cargo install cargo-deny`).
deny:
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
		$(CARGO) deny --locked --all-features check; \
	else \
		echo "deny: skipped, there is no cargo-deny"; \
	fi

install-check: server
	sh tests/install.sh

# From C to this server and back on one binlog; PEER=path of the C server (default: Debian's).
exchange: server
	sh tests/exchange.sh

server:
	$(CARGO) build --locked

# SERVER=path of the server to judge (default: ours, then Debian's), TRANSPORT=tcp to reach it over TCP, CASES=word to run a part.
conformance: server
	SERVER=$(SERVER) TRANSPORT=$(TRANSPORT) $(CARGO) test --locked --test conformance -- $(CASES)

# SEEDS=number of scripts, SEED=number to replay one, A=path and B=path of the servers (default: Debian's and ours).
differential: server
	DIFFERENTIAL_SEEDS=$(SEEDS) SEED=$(SEED) DIFFERENTIAL_A=$(A) DIFFERENTIAL_B=$(B) \
		$(CARGO) test --locked --test differential

# PEER=path of another server (default: Debian's), ROWS=word,word to measure a part, QUICK=1 for a rough run.
bench:
	$(CARGO) bench --bench bench -- $(PEER:%=--peer %) $(ROWS:%=--rows '%') $(QUICK:%=--quick)

# The pure parts alone; BENCH_LARGE=1 adds 10 million jobs.
micro:
	$(CARGO) bench --bench micro

# SEEDS=number, by default a million; SEED=n replays one and tells every step.
simulation:
	$(if $(SEED),SEED=$(SEED)) SIMULATION_SEEDS=$(or $(SEEDS),1000000) \
		$(CARGO) test --locked --release --test simulation -- --nocapture

# CASES=number, by default a million; SEED=n replays one.
model:
	$(if $(SEED),SEED=$(SEED)) MODEL_CASES=$(or $(CASES),1000000) \
		$(CARGO) test --locked --release --test model -- --nocapture

# SIGKILL amid work. KILLS=number, SEED=n; PEER=path of another server, of which only the losses are counted.
kill-loop:
	KILLS=$(or $(KILLS),500) $(SEED:%=SEED=%) $(PEER:%=PEER=%) $(CARGO) test --locked --test durability -- --nocapture \
		$(if $(PEER),another_server,nothing_acknowledged)

# One directory served by Debian's server and ours in turn. HISTORIES=number, SEED=the first.
interchange:
	HISTORIES=$(or $(HISTORIES),1000) $(SEED:%=SEED=%) $(CARGO) test --locked --test durability -- --nocapture \
		histories_alternate

# TARGET=command_line, byte_stream or operations, for SECONDS; needs cargo-fuzz, but no nightly compiler.
fuzz:
	$(CARGO) fuzz run -s none $(TARGET) -- -dict=fuzz/protocol.dict -max_total_time=$(or $(SECONDS),60)

# Needs `make` first, so that root never runs cargo. What the administrator has written stays.
install:
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(UNITDIR) \
		$(DESTDIR)/etc/default
	install -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/beanstalkd
	install -m 644 doc/beanstalkd.1 $(DESTDIR)$(PREFIX)/share/man/man1/beanstalkd.1
	for unit in beanstalkd.service beanstalkd@.service beanstalkd.socket; do \
		sed 's|/usr/bin/beanstalkd|$(PREFIX)/bin/beanstalkd|' $$unit >$(DESTDIR)$(UNITDIR)/$$unit && \
		chmod 644 $(DESTDIR)$(UNITDIR)/$$unit || exit 1; \
	done
	test -e $(DESTDIR)/etc/default/beanstalkd || \
		install -m 644 packaging/default $(DESTDIR)/etc/default/beanstalkd

# Leaves /etc/default/beanstalkd and the binlog.
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/beanstalkd $(DESTDIR)$(PREFIX)/share/man/man1/beanstalkd.1 \
		$(DESTDIR)$(UNITDIR)/beanstalkd.service $(DESTDIR)$(UNITDIR)/beanstalkd@.service \
		$(DESTDIR)$(UNITDIR)/beanstalkd.socket

# A package for Debian and its kin, in target/debian.
deb:
	$(CARGO) deb --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-deb
	$(CARGO) deb --locked --strip

# The package in a fresh Debian: installed, started, used, removed. Needs root, debootstrap and Debian's archive.
package-check: deb
	bash tests/package.sh

clean:
	$(CARGO) clean
