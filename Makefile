# Two commands: `make demo` and `make check`. Each sets up what it needs by itself.
# A thin layer over cargo, cmake and the scripts; every recipe runs within scripts/with-env.

RUN := scripts/with-env

.PHONY: help setup build demo check fmt lint doc test install-check kills-short kills hosts explore fuzz paper \
        reliable-paper injections tree-paper dgrp-paper slowdown bench header clean distclean

help:
	@echo "make demo     sort a real file on 8 ranks while 4, then 7 of them are killed (FILE=, RANKS=)"
	@echo "make check    every test"
	@echo "make build    the library, optimised"
	@echo "make explore  a million seeds on simulated ranks, and every fault of four (about an hour)"
	@echo "make fuzz     any bytes into every reader of bytes (MINUTES=1 for each)"
	@echo "make kills    the long kill table (about an hour)"
	@echo "make hosts    whole hosts lost, played by network namespaces (root)"
	@echo "make paper    the papers' experiments, with plots (hours; SIZE=, RANKS=, REPETITIONS=)"
	@echo "make reliable-paper  the tables and figures of docs/reliable.md anew (some minutes)"
	@echo "make injections  wrong data by the hundred thousand on MPI (half an hour; COUNT=)"
	@echo "make bench    ftsort in all modes, beside sorts that survive nothing (half an hour; SECTIONS=, TURNS=)"
	@echo "make tree-paper  what the paper on tree communication claims, counted (5 minutes of processor time)"
	@echo "make slowdown sorts while ranks are slow, with monitors and without (REPETITIONS=)"
	@echo "make dgrp-paper  the 2018 paper's experiments on monitoring, simulated (a quarter of an hour; SEED=)"
	@echo "make header   include/ftsort.h anew, from the sources"
	@echo "make clean    what was built;  make distclean: the environment folder too"

setup:
	@$(RUN) true

build: setup
	$(RUN) cargo build --release

demo: build
	@$(RUN) python3 scripts/demo.py $(if $(FILE),--file "$(FILE)") $(if $(RANKS),--ranks "$(RANKS)")

# In this order also under `make -j`: cheap checks first, and the kills with the machine to themselves.
check:
	$(MAKE) fmt
	$(MAKE) lint
	$(MAKE) doc
	$(MAKE) test
	$(MAKE) install-check
	$(MAKE) kills-short

fmt: setup
	$(RUN) cargo fmt --check

lint: setup
	$(RUN) cargo clippy --workspace --all-targets --all-features -- -D warnings
	$(RUN) cargo clippy --lib -- -D warnings
	$(RUN) cargo clippy --lib --no-default-features -- -D warnings
	FTSORT_ULFM=off $(RUN) cargo clippy --lib -- -D warnings

doc: setup
	RUSTDOCFLAGS="-D warnings" $(RUN) cargo doc --workspace --no-deps --all-features

# The library's own tests run once, with the simulator's: they take as long to compile as to run.
test: setup
	$(RUN) cargo test --test exports --test header --test layers --test mpi
	$(RUN) cargo test --doc
	$(RUN) cargo test --profile sim --workspace --all-features --lib --test simulator --test conformance --test corpus

explore: setup
	$(RUN) cargo build --release -p ftsort-sim
	$(RUN) sh -c '"$$CARGO_TARGET_DIR"/release/ftsort-sim explore --seeds 1000000'
	$(RUN) sh -c '"$$CARGO_TARGET_DIR"/release/ftsort-sim explore --seeds 5000 --ranks 9-64'
	$(RUN) sh -c '"$$CARGO_TARGET_DIR"/release/ftsort-sim exhaust --memo "ranks=4 store=memory:1"'
	$(RUN) sh -c '"$$CARGO_TARGET_DIR"/release/ftsort-sim exhaust --losses 2 "ranks=8 store=memory:1"'

fuzz: setup
	$(RUN) python3 scripts/fuzz.py --minutes $(or $(MINUTES),1)

reliable-paper: setup
	$(RUN) cargo build --release -p ftsort-sim
	$(RUN) python3 scripts/reliable_paper.py

# Some of it at a time: what is in its CSV is not run again.
injections: build
	$(RUN) python3 scripts/injections.py $(if $(COUNT),--count "$(COUNT)")

install-check: setup
	$(RUN) python3 scripts/check_install.py

kills-short: build
	$(RUN) python3 scripts/kill_table.py --short

kills: build
	$(RUN) python3 scripts/kill_table.py
	$(RUN) python3 scripts/kill_rounds.py

hosts: build
	$(RUN) python3 scripts/hosts.py

# The papers' experiments: SIZE=30 REPETITIONS=3 and so on for others than 2^24 and 2^26, ten times.
paper: build
	$(RUN) python3 scripts/paper.py $(if $(SIZE),--sizes "$(SIZE)") $(if $(REPETITIONS),--repetitions "$(REPETITIONS)") \
	  $(if $(RANKS),--ranks "$(RANKS)")

# SECTIONS="floor small" TURNS=1 and so on for a part of it.
bench: build
	$(RUN) python3 scripts/bench.py $(SECTIONS) $(if $(TURNS),--turns $(TURNS))

# Sorts while ranks are slow, with monitors and without (half an hour; REPETITIONS=5), by signals and by
# quotas of control groups where that is allowed; and what monitors cost where nobody is slow.
slowdown: build
	$(RUN) python3 scripts/slowdown.py --cost
	$(RUN) python3 scripts/slowdown.py $(if $(REPETITIONS),--repetitions "$(REPETITIONS)")
	$(RUN) python3 scripts/slowdown.py --kind cgroup $(if $(REPETITIONS),--repetitions "$(REPETITIONS)")

tree-paper: setup
	$(RUN) cargo build --release -p ftsort-sim
	@$(RUN) python3 scripts/tree_paper.py $(if $(PATTERNS),--patterns $(PATTERNS))

dgrp-paper: setup
	$(RUN) cargo build --release -p ftsort-sim
	@$(RUN) python3 scripts/dgrp_paper.py $(if $(SEED),--seed $(SEED))

header: setup
	FTSORT_WRITE_HEADER=1 $(RUN) cargo test --test header

clean:
	rm -rf target

distclean: clean
	rm -rf .env
