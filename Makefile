# The entry points. `make test` and `make demo` do their own set-up, on a fresh machine too.

.PHONY: help test lint setup

help:
	@echo 'make demo     a flash sale against a private PostgreSQL, with and without the gatekeeper (90 seconds)'
	@echo 'make test     every test: unit, laws, dialogues, real PostgreSQL and its drivers in four languages'
	@echo 'make lint     formatting, clippy, documentation, licences: what a change must pass'
	@echo 'make setup    what the others install by themselves: PostgreSQL, and drivers for the tests'

setup:
	scripts/setup postgresql drivers

test: setup
	cargo test --workspace --locked

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked
	scripts/deny
