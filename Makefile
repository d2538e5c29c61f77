# `make` builds, `make check` runs all checks and tests, `make install` installs, `make help` lists the rest.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# Where systemd looks for units of the administrator; packages say /lib/systemd/system.
UNITDIR ?= /etc/systemd/system
BINARY ?= target/release/beanstalkd
CTL_BINARY ?= target/release/beanstalkctl
# The packages that cargo builds only if they are named.
CTL_PACKAGES = -p beanstalkctl -p beanstalk-client
# The version of systemd that the units are for. A version before 254 does not know RestartSteps= and would warn.
SYSTEMD ?= $(shell systemctl --version 2>/dev/null | sed -n '1s/systemd \([0-9]*\).*/\1/p')
is_older_systemd = $(filter-out 0,$(shell expr 0$(SYSTEMD) '<' 254))
unit_for_systemd = sed $(if $(is_older_systemd),-e '/^RestartSteps=/d' -e '/^RestartMaxDelaySec=/d')
UNITS = beanstalkd.service beanstalkd@.service beanstalkd.socket
# Not empty if the units and the settings are to be installed: for root, or for a package.
FOR_SYSTEM ?= $(DESTDIR)$(filter 0,$(shell id -u))

.PHONY: help all check lint quick suites unit tls-conformance server admin ctl clients docs units install-check \
	exchange publish-check conformance corpus differential model simulation cross-check check-32bit failover handover \
	kubernetes kill-loop sessions interchange soak fuzz pack-corpus deny survive mutants coverage bench micro \
	client-bench client-bench-check figures install install-ctl install-units uninstall uninstall-ctl deb package-check \
	clean

# Builds the server and beanstalkctl.
all:
	$(CARGO) build --release --locked
	$(CARGO) build --release --locked -p beanstalkctl

# Lists the targets.
help:
	@awk '/^# / { text = text " " substr($$0, 3); next } \
		/^[a-z0-9-]+:([^=]|$$)/ && text { sub(":.*", ""); printf "%s\n   %s\n", $$0, text } { text = "" }' Makefile | \
		fold -s -w 100

# All checks; people and CI run the same. JOBS=number of suites at once, by default two more than there are processors.
check: lint
	$(CARGO) test $(WHOLE) --no-run
	@{ $(MAKE) --jobs=$(JOBS) --output-sync=target --keep-going BUILT=yes suites 2>&1; echo $$? >target/check.status; } | \
		tee target/check.log
	@sh tests/failures.sh target/check.log >&2; exit $$(cat target/check.status)

# Format, lints, and the documentation of the code.
lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(WHOLE) --all-targets -- -D warnings
	$(CARGO) clippy --locked --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(WHOLE) --no-deps

# The checks while you work: format, clippy, unit tests, model and conformance. Takes less than two minutes after a
# build.
quick:
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(WHOLE) --all-targets -- -D warnings
	SERVER=$(CURDIR)/target/debug/beanstalkd KIND=ours $(CARGO) test $(WHOLE) --lib --bins --test model --test conformance

# All packages at once: each choice of packages has other features, and would compile the dependencies again.
WHOLE = --locked --workspace

# The profile of the long forms of the suites; empty: the same as for `check`.
OPTIMIZED ?= --release

# `check` runs several suites at a time, so that one computes while another waits. The longest ones start first, so that
# none runs alone at the end: two that wait for each that computes. `docs` and `suite-failover` need what `clients`
# installs. They stand after a suite that starts when `clients` has ended; otherwise make would start them last.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
LONGEST = clients suite-postgres suite-simulation suite-binlog admin docs suite-failover suite-fuzz_corpora \
	suite-survive suite-durability suite-differential suite-hand_over suite-conformance
SUITE_FILES = $(foreach package,. crates/*,$(wildcard $(package)/tests/*.rs $(package)/tests/*/main.rs))
SUITES = $(sort $(notdir $(basename $(SUITE_FILES:/main.rs=))))
# A recipe of `check` runs one program. The make or cargo in it must not use the job slots of the other recipes.
ALONE = env -u MAKEFLAGS -u MFLAGS

suites: $(LONGEST) tls-conformance exchange $(SUITES:%=suite-%) install-check unit units deny kubernetes publish-check \
	client-bench-check

suite-failover: clients # Its programs in other languages use the libraries that this installs.

suite-%:
	$(ALONE) $(CARGO) test $(WHOLE) --test $*

# The tests inside of the packages, and the examples of their documentation.
unit:
	$(ALONE) $(CARGO) test $(WHOLE) --lib --bins
	$(ALONE) $(CARGO) test $(WHOLE) --doc

tls-conformance:
	TRANSPORT=tls SERVER=$(CURDIR)/target/debug/beanstalkd KIND=ours $(ALONE) $(CARGO) test $(WHOLE) --test conformance

# Compares the API of --admin with its description, and tests the pages in a browser. ADMIN_JOBS=number for a smaller
# tube than a million jobs.
admin: server
	$(ALONE) sh tests/admin/run.sh

# Installs the client libraries from their registries, calls each of their methods, tests the recipes of doc/clients.md,
# and tests some libraries through HAProxy and a takeover.
clients: server
	$(ALONE) sh tests/clients/run.sh
	$(if $(BUILT),,$(CARGO) test $(WHOLE) --test failover programs)

# Checks beanstalkctl and its client library as `check` checks the server.
ctl: server
	$(CARGO) clippy --locked $(CTL_PACKAGES) --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps $(CTL_PACKAGES)
	$(CARGO) test --locked $(CTL_PACKAGES)

# Runs the commands and programs that the documentation shows.
docs: server $(if $(BUILT),clients)
	$(ALONE) PATH="$(CURDIR)/target/debug:$$PATH" python3 tests/docs/run.py

# The tests of hostile clients at full size: ten thousand clients, a hundred thousand connections that end after any
# byte, and ten thousand handshakes.
survive:
	SURVIVE_SENDERS=5000 SURVIVE_CLOSINGS=100000 TLS_ANONYMOUS=10000 TLS_HANDSHAKES=10000 \
		$(CARGO) test $(WHOLE) $(OPTIMIZED) --test survive --test faults --test tls

# Sends the commands of C for MINUTES, by default 30, at RATE commands per second, and those of this server from WORKERS
# workers, 4 or fewer. Checks that no job is lost, no limit is exceeded and no memory leaks.
soak:
	SOAK_MINUTES=$(or $(MINUTES),30) $(if $(RATE),SOAK_RATE=$(RATE)) $(if $(WORKERS),SOAK_WORKERS=$(WORKERS)) \
		$(CARGO) test $(WHOLE) $(OPTIMIZED) --test soak -- --nocapture

# Checks the units of systemd.
units:
	$(ALONE) sh tests/packaging/units.sh

# Checks the licenses, the sources and the known faults of the dependencies (`cargo install cargo-deny`).
deny:
	$(ALONE) CARGO="$(CARGO)" sh tests/packaging/deny.sh

# Tests `make install`, the container image and its health check, and what an upgrade of the package does with a server.
install-check: server
	$(ALONE) sh tests/packaging/install.sh
	$(ALONE) sh tests/packaging/image.sh
	$(ALONE) sh tests/packaging/upgrade.sh target/debug/beanstalkd

# Upgrades from C to this server and back on one binlog; PEER=path of the C server (default: Debian's).
exchange: server
	$(ALONE) sh tests/packaging/exchange.sh

# Makes the packages of the client library and its crates for the registry, and builds what is in them.
publish-check:
	$(ALONE) CARGO="$(CARGO)" sh tests/packaging/publish.sh

# Checks that the server compiles for other systems and processors; TARGETS='...' names others. Needs rustup.
cross-check:
	CARGO="$(CARGO)" sh tests/packaging/cross_check.sh

TARGET_32BIT = i686-unknown-linux-gnu
# The tests of the library, the conformance suite, model and simulation as 32-bit programs. Needs rustup and
# gcc-multilib.
check-32bit:
	rustup target add $(TARGET_32BIT)
	$(CARGO) test --locked --target $(TARGET_32BIT) --lib --test conformance --test model --test simulation

# Builds the server and beanstalkctl as the suites do: a suite of each builds its program.
server:
	$(if $(BUILT),,$(CARGO) test $(WHOLE) --no-run --test log --test ctl)

# SERVER=path of a server to start, or ADDRESS=host:port of a running server (default: ours, then Debian's);
# KIND, MARKS, JUNIT, TRANSPORT and CASES: see doc/conformance.md.
conformance: server
	SERVER=$(SERVER) ADDRESS=$(ADDRESS) KIND=$(KIND) MARKS=$(MARKS) JUNIT=$(JUNIT) TRANSPORT=$(TRANSPORT) \
		$(CARGO) test $(WHOLE) --test conformance -- $(CASES)

# Writes doc/corpus, the conversations of the conformance suite for authors of clients.
corpus:
	WRITE=1 $(CARGO) test $(WHOLE) --test conformance

# Compares two servers. SEEDS=number of scripts, SEED=number to replay one, A=path and B=path of the servers (default:
# Debian's and ours).
differential: server
	DIFFERENTIAL_SEEDS=$(SEEDS) SEED=$(SEED) DIFFERENTIAL_A=$(A) DIFFERENTIAL_B=$(B) \
		$(CARGO) test $(WHOLE) --test differential

# Benchmarks. PEER=path of another server (default: Debian's), ROWS=word,word to measure a part, QUICK=1 for a rough
# run.
bench:
	$(CARGO) bench --bench bench -- $(PEER:%=--peer %) $(ROWS:%=--rows '%') $(QUICK:%=--quick)

# Micro-benchmarks of the pure parts. BENCH_LARGE=1 adds 10 million jobs.
micro:
	$(CARGO) bench --bench micro --bench structures

# Measures the client library beside the other clients of the registry: the table of crates/client/README.md.
client-bench:
	$(CARGO) build --release --locked
	$(CARGO) run --release $(CLIENT_BENCH)

# Checks that this benchmark compiles. It is no member of the workspace, because nothing else needs the other clients.
client-bench-check:
	$(ALONE) $(CARGO) clippy $(CLIENT_BENCH) -- -D warnings

CLIENT_BENCH = --locked --manifest-path crates/client/bench/Cargo.toml --target-dir target/client-bench

# Measures everything that doc/figures.md has, and writes that page: about an hour, in which nothing else may run.
figures:
	CARGO="$(CARGO)" sh tests/figures.sh

# Simulates the server. SEEDS=number, by default a million; SEED=n replays one and prints every step.
simulation:
	$(if $(SEED),SEED=$(SEED)) SIMULATION_SEEDS=$(or $(SEEDS),1000000) \
		$(CARGO) test $(WHOLE) $(OPTIMIZED) --test simulation -- --nocapture

# Compares the queue with its model. CASES=number, by default a million; SEED=n replays one.
model:
	$(if $(SEED),SEED=$(SEED)) MODEL_CASES=$(or $(CASES),1000000) \
		$(CARGO) test $(WHOLE) $(OPTIMIZED) --test model -- --nocapture

# Kills the server (SIGKILL) while it works. KILLS=number, SEED=n; PEER=path of another server: counts its losses.
kill-loop:
	KILLS=$(or $(KILLS),500) $(SEED:%=SEED=%) $(PEER:%=PEER=%) $(CARGO) test $(WHOLE) --test durability -- --nocapture \
		$(if $(PEER),another_server,nothing_acknowledged)

# Kills, stops, hands over and takes over servers under workers with sessions, and cuts their links. ROUNDS=number,
# WORKERS=number, SEED=n.
sessions:
	SESSION_ROUNDS=$(or $(ROUNDS),200) SESSION_WORKERS=$(or $(WORKERS),1000) SESSION_LIMIT_MS=1000 $(SEED:%=SEED=%) \
		$(CARGO) test $(WHOLE) --test durability -- --nocapture no_job_of_a_session

# Two servers for one queue in PostgreSQL: load, faults at random moments, pauses, and a checker. ROUNDS=number,
# SEED=the first.
failover:
	FAILOVER_ROUNDS=$(or $(ROUNDS),200) FAILOVER_PAUSES=$(or $(ROUNDS),200) $(SEED:%=SEED=%) \
		$(CARGO) test $(WHOLE) --test failover -- --nocapture --test-threads 1 \
		nothing_that_was_acknowledged_is_lost_on_a_database a_pause_of_less_than_the_takeover

# Hands a server over again and again under load, with 10,000 connections and a million jobs, and prints the longest
# pause; and kills it, stops it and so on at its system calls. ROUNDS=number, STEPS=number of calls with each kind of
# log, SEED=n.
handover:
	HANDOVER_ROUNDS=$(or $(ROUNDS),100) HANDOVER_CONNECTIONS=10000 HANDOVER_JOBS=1000000 HANDOVER_KILLS=200 \
		HANDOVER_STEPS=$(or $(STEPS),50) $(SEED:%=SEED=%) \
		$(CARGO) test $(WHOLE) $(OPTIMIZED) --test hand_over -- --nocapture --test-threads 1 load steps

# Checks the manifests of packaging/kubernetes against the schema of Kubernetes.
kubernetes: server
	$(ALONE) sh tests/packaging/kubernetes.sh

# Debian's server and ours use one directory in turn. HISTORIES=number, SEED=the first.
interchange:
	HISTORIES=$(or $(HISTORIES),1000) $(SEED:%=SEED=%) $(CARGO) test $(WHOLE) --test durability -- --nocapture \
		histories_alternate

# Changes the code in one place at a time, and lists the changes that no test notices: hours or days for all of them.
# PACKAGE=beanstalk-client or beanstalkctl, by default the server and the crates below it; FILES=a pattern of files
# within it, such as 'crates/ctl/src/transfer/**'; SHARD=0/100 for each hundredth change; TESTS=arguments of the tests.
# Needs cargo-mutants. With PACKAGE, it changes the files of this directory, and changes them back.
mutants: $(if $(PACKAGE),server)
	MODEL_CASES=1000 SIMULATION_SEEDS=24 $(CARGO) mutants $(MUTANTS_OF) --timeout 300 \
		$(if $(SHARD),--sharding round-robin --shard $(SHARD)) -- --locked $(TESTS)

SERVER_FILES = -f 'src/**' -f 'crates/*/src/**' -e 'crates/client/**' -e 'crates/ctl/**'
MUTANTS_OF = $(if $(PACKAGE),--in-place -p $(PACKAGE) $(FILES:%=-f '%'), \
	--workspace --test-workspace true $(if $(FILES),-f '$(FILES)',$(SERVER_FILES)))
TESTS ?= $(if $(PACKAGE),--tests,--lib --test model --test simulation --test binlog --test conformance)

# The lines that the tests execute, of all packages. Needs cargo-tarpaulin, which reads the compiler's own profiles: no
# LLVM tools are needed.
coverage: server
	$(CARGO) tarpaulin --engine llvm --follow-exec --no-fail-fast $(WHOLE) --lib --bins $(COVERING:%=--test %) \
		--include-files 'src/*' --include-files 'crates/*/src/*' --exclude-files '**/tests.rs' \
		--out Stdout --timeout 900

COVERING = model simulation fuzz_corpora binlog conformance survive faults durability metrics notify log ctl \
	$(basename $(notdir $(wildcard crates/client/tests/*.rs)))

CORPUS = target/corpus/$(TARGET)
corpus_tool = $(CARGO) run --locked --quiet --package beanstalkd-testkit --bin corpus --
# TARGET=a name in fuzz/targets, for SECONDS; needs cargo-fuzz, but no nightly compiler.
# New inputs stay in target/corpus. `make pack-corpus` adds those that reach more code to the committed corpus.
fuzz:
	$(corpus_tool) unpack fuzz/corpus/$(TARGET) $(CORPUS)
	$(corpus_tool) dictionary fuzz/protocol.dict target/protocol.dict
	$(CARGO) fuzz run -s none $(TARGET) $(CORPUS) -- -dict=target/protocol.dict -max_total_time=$(or $(SECONDS),60)

# Packs TARGET's corpus: the fewest inputs that reach the same code as target/corpus.
pack-corpus:
	rm -rf $(CORPUS).kept && mkdir -p $(CORPUS).kept
	$(corpus_tool) unpack fuzz/corpus/$(TARGET) $(CORPUS)
	$(CARGO) fuzz run -s none $(TARGET) $(CORPUS).kept $(CORPUS) -- -merge=1
	$(corpus_tool) pack $(CORPUS).kept fuzz/corpus/$(TARGET)

# Installs the programs that `make` has built. Run `make` first, so that root does not run cargo. The symbols stay in
# target. An existing /etc/default/beanstalkd stays. Without root, PREFIX=$$HOME/.local installs the programs and
# manual pages, and no units.
install:
	@mkdir -p $(DESTDIR)$(PREFIX)/bin 2>/dev/null && test -w $(DESTDIR)$(PREFIX)/bin || { \
		echo "make install: you may not write to $(PREFIX): use sudo make install," \
			"or make install PREFIX=\$$HOME/.local" >&2; exit 1; }
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -s -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/beanstalkd
	install -m 644 doc/beanstalkd.1 $(DESTDIR)$(PREFIX)/share/man/man1/beanstalkd.1
	if [ -e $(CTL_BINARY) ]; then $(MAKE) install-ctl; fi
	$(if $(FOR_SYSTEM),$(MAKE) install-units, \
		@echo "make install: only root can install the units; start $(PREFIX)/bin/beanstalkd yourself")

# Installs the units and the settings.
install-units:
	install -d $(DESTDIR)$(UNITDIR) $(DESTDIR)/etc/default
	for unit in $(UNITS); do \
		$(unit_for_systemd) -e 's|/usr/bin/beanstalkd|$(PREFIX)/bin/beanstalkd|' $$unit >$(DESTDIR)$(UNITDIR)/$$unit && \
		chmod 644 $(DESTDIR)$(UNITDIR)/$$unit || exit 1; \
	done
	test -e $(DESTDIR)/etc/default/beanstalkd || \
		install -m 644 packaging/default $(DESTDIR)/etc/default/beanstalkd

# Installs beanstalkctl alone, for the machine of an operator. The program itself makes its manual page and completions.
install-ctl:
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	install -s -m 755 $(CTL_BINARY) $(DESTDIR)$(PREFIX)/bin/beanstalkctl
	generated=$$(mktemp -d) && trap 'rm -r "$$generated"' EXIT && $(CTL_BINARY) __generate "$$generated" && \
		install -m 644 "$$generated/beanstalkctl.1" $(DESTDIR)$(PREFIX)/share/man/man1/beanstalkctl.1 && \
		install -m 644 "$$generated/beanstalkctl.bash" $(DESTDIR)$(PREFIX)/share/bash-completion/completions/beanstalkctl && \
		install -m 644 "$$generated/_beanstalkctl" $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_beanstalkctl && \
		install -m 644 "$$generated/beanstalkctl.fish" $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/beanstalkctl.fish

# Removes the installed files, except /etc/default/beanstalkd and the binlog.
uninstall: uninstall-ctl
	rm -f $(DESTDIR)$(PREFIX)/bin/beanstalkd $(DESTDIR)$(PREFIX)/share/man/man1/beanstalkd.1 \
		$(if $(FOR_SYSTEM),$(UNITS:%=$(DESTDIR)$(UNITDIR)/%))

uninstall-ctl:
	rm -f $(DESTDIR)$(PREFIX)/bin/beanstalkctl $(DESTDIR)$(PREFIX)/share/man/man1/beanstalkctl.1 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/beanstalkctl \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_beanstalkctl \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/beanstalkctl.fish

# Makes a package for Debian and Ubuntu in target/debian. Builds cargo-deb into target/tools if it is not installed.
deb: export PATH := $(PATH):$(CURDIR)/target/tools/bin
deb:
	$(CARGO) deb --version >/dev/null 2>&1 || $(CARGO) install --locked --root target/tools cargo-deb
	mkdir -p target/units
	for unit in $(UNITS); do $(unit_for_systemd) -e '' $$unit >target/units/$$unit || exit 1; done
	$(CARGO) build --release --locked -p beanstalkctl
	$(CTL_BINARY) __generate target/generated
	$(CARGO) deb --locked --strip
	sh packaging/finish-package "$${CARGO_TARGET_DIR:-target}"/debian/beanstalkd_*.deb

# Installs, starts, uses and removes the package in a fresh Debian. Needs root, debootstrap and Debian's archive.
package-check: deb
	bash tests/packaging/package.sh
	bash tests/packaging/boot.sh

clean:
	$(CARGO) clean
