# The entry points. `make test` and `make demo` do their own set-up, on a fresh machine too.

.PHONY: help demo release package try-package figures uplink proofs catalogue experiments check test conformance conformance-psycopg lint bench fuzz setup

help:
	@echo 'make demo     a flash sale before a private PostgreSQL, and an overloaded site, with and without the gatekeeper (150 seconds once built)'
	@echo 'make release  the gatekeeper as it is meant to run for good, guided by a profile of its own work: target/guided/gatekeeper (ten minutes)'
	@echo 'make package  that gatekeeper as a .deb, a static one with its image, SBOM, manifests for Kubernetes, checksums: target/package'
	@echo 'make try-package  that package, in a clean Debian root under systemd: installed, upgraded under load, purged (five minutes; takes root)'
	@echo 'make figures  the figures of the papers, simulated: docs/results/figures (a few minutes)'
	@echo 'make uplink   response bytes on a simulated uplink: docs/results/figures (a few minutes)'
	@echo 'make proofs   what the papers leave open, simulated: two pages of docs/results (two minutes)'
	@echo 'make catalogue  every scenario of the catalogue, simulated: docs/results/catalogue.md (less than ten minutes)'
	@echo 'make check    what to run after each change: formatting, clippy, unit tests, laws, rules of the house'
	@echo 'make test     every test: unit, laws, dialogues, real PostgreSQL and its drivers in five languages, a site and real clients'
	@echo 'make conformance  only the own suites of pgx and lib/pq, with what they print'
	@echo 'make conformance-psycopg  psycopg'\''s, from a checkout: GATEKEEPER_PSYCOPG_SUITE says where'
	@echo 'make lint     formatting, clippy, documentation, licences: what a change must pass'
	@echo 'make bench    the experiments at length: the sale, reports, the cost beside PgBouncer and HAProxy, held response times, peers'
	@echo 'make experiments  every plan below experiments/ in its short form, and the page: results/report/report.html (half an hour)'
	@echo 'make fuzz     every decoder, and sessions against PostgreSQL, for SECONDS=300 each: looks for what they do not bear'
	@echo 'make setup    what the others install by themselves: PostgreSQL, drivers, HTTP clients and peers for the tests'

setup:
	scripts/setup postgresql mariadb drivers clients pgbouncer systemd prometheus packages pgpool web-proxies peers

# Both are built together and then run as they are: cargo would build what they share again for one of them alone.
built := $(or $(CARGO_TARGET_DIR),target)/release

demo:
	scripts/setup postgresql
	@echo 'Building for release: some ten minutes on two cores the first time.'
	cargo build --release --locked -p gatekeeper -p bench
	$(built)/bench demo

release:
	scripts/release

# GATEKEEPER_BIN and GATEKEEPER_STATIC_BIN name other programs to pack.
package: guided := $(or $(CARGO_TARGET_DIR),target)/guided
package: $(if $(GATEKEEPER_BIN),,release)
	scripts/setup packages
	$(if $(GATEKEEPER_STATIC_BIN),,scripts/release static)
	scripts/package $(or $(GATEKEEPER_BIN),$(guided)/gatekeeper)
	scripts/package-static $(or $(GATEKEEPER_STATIC_BIN),$(guided)/gatekeeper-static)

try-package:
	scripts/try-package

figures:
	cargo build --release --locked -p figures
	$(built)/figures

uplink:
	cargo build --release --locked -p figures
	$(built)/uplink

proofs:
	cargo build --release --locked -p figures
	$(built)/proofs

catalogue:
	cargo build --release --locked -p figures
	$(built)/catalogue

# What stands in between is measured as it is meant to run.
bench: export GATEKEEPER_BIN = $(or $(CARGO_TARGET_DIR),target)/guided/gatekeeper
bench: release
	scripts/setup postgresql pgbouncer web-proxies peers
	$(built)/bench run flash-sale-arrivals
	$(built)/bench run reports
	$(built)/bench run long-lane
	$(built)/bench run proxy-cost
	$(built)/bench run idle-clients
	$(built)/bench run proxy-cost --before http --window 2
	$(built)/bench run bounded-response
	$(built)/bench run shortest-first
	$(built)/bench run stall
	$(built)/bench run own-overload
	$(built)/bench run peers-origin

experiments:
	scripts/setup postgresql pgbouncer pgpool
	cargo build --release --locked -p gatekeeper -p bench -p bookstore
	for plan in experiments/*/plan.toml; do $(built)/bench run --short $$(basename $$(dirname $$plan)) || echo "not measured: $$plan" >&2; done
	$(built)/bench report --tables none

SECONDS ?= 300

fuzz:
	scripts/fuzz $(SECONDS)

# The units are those of `make test`, so that neither builds anew what the other has built.
check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --workspace --locked --quiet --lib --bins --test laws --test order --test tidy

test: setup
	cargo test --workspace --locked --no-fail-fast

conformance: setup
	cargo test -p gatekeeper --locked --test conformance -- --nocapture --test-threads=1

conformance-psycopg: setup
	GATEKEEPER_PSYCOPG_SUITE='$(GATEKEEPER_PSYCOPG_SUITE)' cargo test -p gatekeeper --locked --test psycopg

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy -p gatekeeper --test psycopg --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked
	scripts/deny
