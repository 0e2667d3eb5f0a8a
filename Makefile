# Braid: every command does its own set-up and may be run first.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/braid
# One target folder for every command, outside the tree, so that a second checkout does not rebuild the world.
export CARGO_TARGET_DIR ?= $(CACHE)/target
# RocksDB is compiled once per version (.ci/rocksdb says why apart from the rest).
ROCKSDB_VERSION := $(shell sed -n '/^name = "librocksdb-sys"/{n;s/version = "\(.*\)"/\1/p}' Cargo.lock)
export ROCKSDB_LIB_DIR ?= $(CACHE)/rocksdb-$(ROCKSDB_VERSION)
export ROCKSDB_STATIC := 1
export BRAID_TOOLS ?= $(CACHE)/tools

.PHONY: help setup build install test test-long demo cluster cluster-down cluster-demo bench bench-quick bench-cluster bench-tier soak fix clean

# Where `make install` puts things; DESTDIR stands before all of it. mount(8) looks for helpers in /sbin only.
PREFIX ?= /usr/local
SBIN ?= /sbin
UNITS ?= /lib/systemd/system

help: ## this page
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing (Debian packages; asks for nothing when all is there)
	@.ci/setup
	@.ci/rocksdb "$(ROCKSDB_LIB_DIR)"

build: setup ## compile; the binary is ./bin/braid
	cargo build --release --package braid --package braid-bench
	@mkdir -p bin
	@cp --remove-destination "$(CARGO_TARGET_DIR)/release/braid" bin/braid
	@cp --remove-destination "$(CARGO_TARGET_DIR)/release/braid-bench" bin/braid-bench

install: build ## the binary, manual pages, units of systemd, the helper of mount -t braid (PREFIX, SBIN, UNITS, DESTDIR)
	install -D -m 755 bin/braid "$(DESTDIR)$(PREFIX)/bin/braid"
	mkdir -p "$(DESTDIR)$(PREFIX)/share/man/man1" "$(DESTDIR)$(SBIN)"
	bin/braid man "$(DESTDIR)$(PREFIX)/share/man/man1"
	ln -sfn "$(PREFIX)/bin/braid" "$(DESTDIR)$(SBIN)/mount.braid"
	mkdir -p "$(DESTDIR)$(UNITS)"
	for unit in app/systemd/*.service; do \
	  sed 's|@PREFIX@|$(PREFIX)|g' "$$unit" >"$(DESTDIR)$(UNITS)/$$(basename "$$unit")"; done

test: setup ## the gate: format, lints, tidy, unit, model and simulator tests, then real programs on a real mount
	cargo xtask ci
	$(MAKE) build
	tests-outside/run.sh --lanes 2

test-long: setup ## the gate and its long versions: 5,000 simulator seeds, 200 kills, a million files (hours)
	cargo xtask ci
	BRAID_SEEDS=5000 cargo test --release --package braid-sim -- --nocapture
	$(MAKE) build
	tests-outside/run.sh --long

demo: build ## a cluster, a real tree, a kill, two lost drives, a capacity tier; leaves the mounts up
	tests-outside/demo.sh

cluster: build ## six hosts and three members of etcd in network namespaces, mounted; left running (cluster-down stops it)
	tests-outside/cluster.sh up

cluster-down: ## stop what `make cluster` started, and take it away
	tests-outside/cluster.sh down

cluster-demo: build ## such a cluster: two hosts killed under load, one cut off, a drive replaced; nothing lost
	tests-outside/cluster.sh demo

bench: build ## figures beside ext4 of the same disk, into bench/results/ (half an hour; bench/README.md)
	bench/run.sh

bench-quick: build ## the same in two minutes, to try it: its figures mean little
	bench/run.sh --quick

bench-cluster: build ## the same of six hosts and three members of etcd in network namespaces, 4+2, three copies of metadata
	tests-outside/cluster.sh bench --rounds 3

bench-tier: build ## the capacity tier beside a client of the same S3 server on this machine (ten minutes; bench/README.md)
	bench/tier.sh

soak: build ## 4 KiB random overwrite on a cluster that is 80 % full, MINUTES=30
	bench/soak.sh --minutes $(or $(MINUTES),30)

fix: setup ## rewrite what can be rewritten: clippy suggestions and format
	cargo xtask fix

clean: ## forget the compiled files (RocksDB takes its time again)
	rm -rf bin "$(CARGO_TARGET_DIR)"
