# `make` alone lists what there is to do.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help try try-down test check bench large soak long hours chaos order fuzz mutants image docs

CACHE := $(or $(LINESMAN_CACHE),$(HOME)/.cache/linesman)
# In CI every run is a fresh checkout; the compiled dependencies outlive it here.
ifeq ($(CI),true)
export CARGO_TARGET_DIR ?= $(CACHE)/target
endif

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

try: ## Adopt, sync, reach and heal a real local cluster, and leave it running (KUBECONFIG=… uses that cluster)
	@tests/try/run up

try-down: ## Take down what `make try` left running
	@tests/try/run down

test: ## Everything that CI runs: format, lints, unit, in-process and real-cluster tests
	@tests/run all

check: ## Format, lints and unit tests (and cargo-deny, cargo-machete where they are installed)
	@tests/run check

bench: ## kubectl through the hub, the line beside its peers, make try: measured, and written into docs/benchmarks.md (an hour)
	@tests/run bench

large: ## What is too large for every run, at full size, in one process (an hour): 16 × 1 GiB echoed, a clone of 500 MB, ten minutes of silence and of streams (LINESMAN_LARGE_MINUTES=10) over a line that breaks, a hub killed a thousand times and one with 10,000 clusters; prints figures
	@tests/run large

soak: ## Half an hour (FOR=30, in minutes) of cuts, sessions, copies and watches on a lab: nothing stuck, wrong or growing
	@tests/run soak $(or $(FOR),30)

long: ## Two hours (FOR=130, in minutes) of watches, sessions, a silent log and port-forwards left open on a lab: all still there; and k9s
	@tests/run long $(or $(FOR),130)

hours: ## An hour (FOR=60, in minutes) without the hub on a lab, half of it without Git, then a third of that in which nothing happens; with Flux, or Argo CD (ENGINE=argocd); writes its part of docs/benchmarks.md
	@tests/run hours $(or $(FOR),60) $(or $(ENGINE),flux)

chaos: ## Every fault of the list and random days (DAYS=10, RUNS=20) on both engines: an afternoon; writes its part of docs/benchmarks.md
	@tests/run chaos $(or $(RUNS),20) $(or $(DAYS),10)

order: ## Which functions agents enter, traced on a lab (half an hour): writes src/main.order, by which the program is linked; before a release
	@tests/run order

fuzz: ## Every fuzz target for a minute each (FOR=60, in seconds); needs the nightly toolchain
	@tests/run fuzz $(or $(FOR),60)

mutants: ## Break the planner in each way that cargo-mutants knows: which change does no test notice? (an hour; interrupted, it goes on where it was; SHARD=0/40 is a sample, FILE=plan/pace.rs one file)
	@tests/mutants $(or $(SHARD),0/1) $(FILE)

image: ## Make the agent's image without Docker and import it into the lab LAB (default: try)
	@tests/image $(or $(LAB),try)

docs: ## The API's documentation, in target/doc
	@cargo doc --no-deps --document-private-items
