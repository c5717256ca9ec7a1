# Everything a developer or CI does with Sapwood, behind one word each. `make` alone lists the words.
#
# All targets build with --release: RocksDB takes minutes to compile, and this way it is compiled once and what is
# tested is what ships (see Cargo.toml).

SHELL := bash
.DEFAULT_GOAL := help

# What `make run` does. Change it here only.
RUN_ARGS ?= demo
# Fuzzing: seconds for each target, which targets (all when empty), and the sanitizer. "none" is the one that the
# stable toolchain can build; with nightly, try FUZZ_SANITIZER=address.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?=
FUZZ_SANITIZER ?= none
# Length of the long runs; `make test` runs the same tests with the short lengths built into them.
CRASHES ?= 5000
SEQUENCES ?= 100000
SCHEDULES ?= 5000
BLOCKS ?= 10000
TRANSACTIONS ?= 2600000

.PHONY: help setup build run test lint bench load fuzz crash prop sim big docs clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## Check the build tools and install the missing ones (Debian, Ubuntu)
	@scripts/setup.sh

build: setup ## Build everything
	cargo build --release --workspace

run: setup ## Show a node at work, with a page to look at; Ctrl-C ends it
	cargo run --release -p sapwood -- $(RUN_ARGS)

# The doctests go first, so that the last words are the summary of the test runner.
test: setup ## Run all tests: doctests, then the rest
	@scripts/browser-env.sh
	@scripts/python-env.sh >/dev/null
	@scripts/promtool-env.sh >/dev/null
	cargo test --release --doc --workspace
	cargo nextest run --release --workspace

# The fuzz crate is a workspace of its own, so the first line does not reach it.
lint: ## Check format, clippy, documentation, dependencies and house rules; warnings are errors
	@scripts/setup.sh --lint
	cargo fmt --all --check
	$(if $(wildcard fuzz/Cargo.toml),cargo fmt --manifest-path fuzz/Cargo.toml --check)
	cargo clippy --release --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --release --no-deps --workspace
	scripts/check-text.sh
	cargo machete --skip-target-dir
	cargo deny --locked check bans licenses sources
	cargo deny --locked --manifest-path fuzz/Cargo.toml check bans licenses sources

bench: setup ## Measure block apply and pruning, with a mark for each target
	cargo run --release -p sapwood -- bench apply

load: setup ## Measure reads over HTTP while blocks are applied and pruned; needs wrk
	@command -v wrk >/dev/null || { echo "load: wrk is missing (Debian, Ubuntu: apt install wrk)" >&2; exit 1; }
	cargo run --release -p sapwood -- bench serve

# What is found goes to fuzz/corpus and fuzz/artifacts (both ignored by git); fuzz/seeds/TARGET holds tracked inputs.
# libFuzzer writes to the first directory only, so the seeds stay as they are.
fuzz: ## Fuzz every decoder, FUZZ_SECONDS (60) each; FUZZ_TARGETS picks some
	@scripts/setup.sh --fuzz
	@set -euo pipefail; \
	targets="$(FUZZ_TARGETS)"; \
	if [ -z "$$targets" ]; then targets=$$(cargo fuzz list); fi; \
	if [ -z "$$targets" ]; then echo "fuzz: no targets in fuzz/" >&2; exit 1; fi; \
	cargo fuzz build --sanitizer $(FUZZ_SANITIZER); \
	for target in $$targets; do \
	    echo "--- fuzz $$target, $(FUZZ_SECONDS) s"; \
	    mkdir -p "fuzz/corpus/$$target"; \
	    inputs="fuzz/corpus/$$target"; \
	    if [ -d "fuzz/seeds/$$target" ]; then inputs="$$inputs fuzz/seeds/$$target"; fi; \
	    cargo fuzz run --sanitizer $(FUZZ_SANITIZER) "$$target" $$inputs -- \
	        -max_total_time=$(FUZZ_SECONDS) -timeout=10 -verbosity=0 -print_final_stats=1; \
	done

crash: setup ## Kill a ledger on RocksDB CRASHES (5000) times and check what is left
	SAPWOOD_CRASHES=$(CRASHES) cargo nextest run --profile long --release --workspace -E 'package(sapwood-engine-rocksdb) & test(crash_)' --no-capture

prop: setup ## Run SEQUENCES (100000) random sequences against the model, and on two engines side by side
	SAPWOOD_SEQUENCES=$(SEQUENCES) cargo nextest run --profile long --release --workspace -E '(package(sapwood-engine-rocksdb) | package(sapwood-ledger)) & test(state_machine)'

sim: setup ## Simulate SCHEDULES (5000) random schedules and BLOCKS (10000) blocks with the pruner at work
	SAPWOOD_SCHEDULES=$(SCHEDULES) SAPWOOD_BLOCKS=$(BLOCKS) cargo nextest run --profile long --release --workspace -E 'package(sapwood-pruner) & test(sim)' --no-capture

big: setup ## Apply one block of TRANSACTIONS (2600000) transactions and watch the memory
	SAPWOOD_BIG_BLOCK=$(TRANSACTIONS) cargo nextest run --release -p sapwood-chain -E 'test(teranode_1187_a_block_of_two)' --no-capture

docs: setup ## Build the API documentation
	cargo doc --release --no-deps --workspace

clean: ## Remove build output (RocksDB then has to be built again)
	cargo clean
	rm -rf fuzz/target
