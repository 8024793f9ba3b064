# Two commands: `make demo` and `make check`. Each installs what it needs by itself.
# A thin layer over cargo, cmake and the scripts; every recipe runs within scripts/with-env.

RUN := scripts/with-env
# Cargo's profile of the library in `build`, `install-check` and `kills-short`.
PROFILE := release
# The library with debug assertions is the one that cargo has built for the tests.
ifeq ($(PROFILE),dev)
FEATURES := testing
else
CRATE_TYPES := --crate-type cdylib,staticlib
endif
# The packages and features of the tests, alike in all targets, so that cargo builds each package once for them. The models
# have a target of their own.
TESTED := --workspace --features testing --exclude ftsort-papers --exclude ftsort-model
# Runs a command of cargo with unstable options of the stable compiler, in a target folder of its own: build scripts depend on
# RUSTC_BOOTSTRAP, so that cargo would build most packages of the tests again, twice.
UNSTABLE := RUSTC_BOOTSTRAP=1 CARGO_BUILD_TARGET=x86_64-unknown-linux-gnu $(RUN) sh -c \
  'CARGO_TARGET_DIR="$$CARGO_TARGET_DIR/unstable" exec "$$@"' sh
# Runs a command with the release library, which the MPI tests use as the demo and the kill tables do.
WITH_RELEASE := $(RUN) sh -c 'FTSORT_LIBRARY_DIR="$$CARGO_TARGET_DIR/release" exec "$$@"' sh

.PHONY: help setup build demo check check-all packages debian-tools fmt lint lint-all doc test test-scripts test-mpi \
        test-all test-mpi-all install-check kills-short kills-medium kills chaos hosts sanitize sanitize-kernels \
        sanitize-mpi races coverage mutants models explore fuzz paper reliable-paper injections tree-paper dgrp-paper \
        slowdown bench header dist deb other-mpis slurm publish-check wheel test-python pictures site site-check clean \
        distclean

help:
	@echo "make demo           sort a real file on 8 ranks while 4, then 7 of them are killed (FILE=, RANKS=)"
	@echo "make check          the tests that every change must pass (9 minutes on 2 cores, builds included)"
	@echo "make check-all      more schedules and cases, the optimised library, and sanitizers (40 minutes)"
	@echo "make packages       what a release publishes, compiled and used: deb, dist and crates (10 minutes)"
	@echo "make sanitize       AddressSanitizer on the kernels and on the programs of the MPI tests"
	@echo "make races          ThreadSanitizer on the threads of kernels, monitors and probes"
	@echo "make coverage       lines of the protocol that no unit test and no simulated trial executes"
	@echo "make mutants        generated changes of the protocol that no test detects (an hour; SHARD=0/16)"
	@echo "make build          build the optimised library"
	@echo "make header         generate include/*.h and the Fortran module, and record the binary interface"
	@echo "make dist           a tarball that builds without network (CHECK=1: build it so)"
	@echo "make deb            packages of Debian (CHECK=1: lintian, and a program that uses them)"
	@echo "make other-mpis     build and sort with Debian's Open MPI and MPICH"
	@echo "make slurm          sort in allocations of a Slurm cluster on this machine (root; 3 minutes)"
	@echo "make wheel          build the wheel of the Python package into target/wheels"
	@echo "make test-python    test the Python package (3 minutes; WHEEL=1: as installed from the wheel)"
	@echo "make site           build the documentation site into target/site"
	@echo "make pictures       draw docs/pictures"
	@echo "make explore        a million seeds on simulated ranks, and all pairs of failures (hours)"
	@echo "make fuzz           fuzz the parsers of files, messages and schedules (MINUTES=1 for each)"
	@echo "make kills          the long kill tables (hours; RUNS=500 random kills for each store and size)"
	@echo "make chaos          kills, stops and slow ranks during mixed calls (MINUTES=10; SEED=)"
	@echo "make hosts          loss of whole hosts, emulated with network namespaces (root)"
	@echo "make bench          ftsort in all modes beside sorts without fault tolerance (half an hour; SECTIONS=, TURNS=)"
	@echo "make paper          experiments of the 2024 paper, with plots (hours; SIZE=, RANKS=, REPETITIONS=)"
	@echo "make reliable-paper tables and figures of docs/reliable.md (some minutes)"
	@echo "make tree-paper     claims of the 1996 paper, counted (5 minutes of processor time)"
	@echo "make dgrp-paper     experiments of the 2018 paper, simulated (a quarter of an hour; SEED=)"
	@echo "make injections     hundreds of thousands of data corruptions on MPI (half an hour; COUNT=)"
	@echo "make slowdown       sorts with slow ranks, with and without monitors (half an hour; REPETITIONS=)"
	@echo "make clean          remove build outputs;  make distclean: remove the environment folder too"

setup:
	@$(RUN) true

# The same command as in CMakeLists.txt, so that the installed library is the tested one.
build: setup
	$(RUN) cargo rustc --lib $(CRATE_TYPES) --profile $(PROFILE) --features "$(FEATURES)"

demo: build
	@$(RUN) python3 scripts/demo.py $(if $(FILE),--file "$(FILE)") $(if $(RANKS),--ranks "$(RANKS)")

# One after the other also under `make -j`: cheap checks first, and the kills without load beside them. The library is
# that of the tests, with debug assertions; `check-all` tests the optimised one.
check:
	$(MAKE) fmt
	$(MAKE) lint
	$(MAKE) doc
	$(MAKE) test
	$(MAKE) test-scripts
	$(MAKE) test-mpi
	$(MAKE) install-check PROFILE=dev
	$(MAKE) kills-short PROFILE=dev

# Two targets at once where no test measures times: compilations often use one processor. The cases of `test-mpi-all` are
# those of `sanitize-mpi`.
check-all:
	$(MAKE) debian-tools
	$(MAKE) --jobs=2 --output-sync=target build races test-all lint-all models sanitize-kernels
	$(MAKE) sanitize-mpi
	$(MAKE) install-check
	$(MAKE) kills-short
	$(MAKE) --jobs=2 --output-sync=target test-python other-mpis
	$(MAKE) chaos MINUTES=2

# Several at once, because linking uses one processor.
packages:
	$(MAKE) --jobs=2 --output-sync=target deb dist publish-check CHECK=1

fmt: setup
	$(RUN) cargo fmt --all --check

# The model needs a model checker, which takes longer to compile than all else: `lint-all` has it.
lint: setup
	$(RUN) cargo clippy --workspace --exclude ftsort-model --all-targets --features testing -- -D warnings
	$(RUN) python3 scripts/dependencies.py

lint-all: setup
	$(RUN) cargo clippy --workspace --all-targets --all-features -- -D warnings
	$(RUN) cargo clippy --lib -- -D warnings
	$(RUN) cargo clippy --lib --no-default-features -- -D warnings
	FTSORT_ULFM=off $(RUN) cargo clippy --lib -- -D warnings

doc: setup
	RUSTDOCFLAGS="-D warnings" $(RUN) cargo doc --workspace --exclude ftsort-model --no-deps --features testing

# Unit and property tests, the simulator with its mutants at a small size, and the tests of form.
test: setup
	$(RUN) cargo test $(TESTED) --lib --test simulator --test group --test conformance --test corpus --test tidy --test header \
	  --test failed_mremap --test replaced_mremap --test refused_threads --test retained

# The scripts' own tests; the settings for fault tolerance are the same in all places that have them.
test-scripts: setup
	$(RUN) python3 scripts/settings.py
	$(RUN) python3 -m unittest discover scripts/tests

# The library is the one that cargo builds for the tests.
test-mpi: setup
	FTSORT_TESTS=quick $(RUN) cargo test $(TESTED) --test mpi --test exports

# The same tests at their full size. The kernels and the simulator have a profile that compiles longer, runs faster, and
# optimises the kernels as a release does; the unit tests of the other packages would take longer to compile than to run.
test-all: setup
	FTSORT_TESTS=all $(RUN) cargo test $(TESTED) --exclude ftsort-kernels --exclude ftsort-sim --lib --test conformance --test corpus
	$(RUN) cargo test $(TESTED) --doc
	FTSORT_TESTS=all $(RUN) cargo test --profile sim -p ftsort-kernels -p ftsort-sim --lib --test simulator --test group

test-mpi-all: build
	FTSORT_TESTS=all $(WITH_RELEASE) cargo test $(TESTED) --test mpi

# The models of the papers, and the model of the protocol in a model checker.
models: setup
	$(RUN) cargo test --profile sim -p ftsort-papers
	FTSORT_TESTS=all $(RUN) cargo test --profile sim -p ftsort-model

# Compilers and MPIs of Debian, without which some tests skip cases.
debian-tools:
	python3 scripts/debian_tools.py

sanitize: sanitize-kernels sanitize-mpi

# AddressSanitizer on the kernels, with the stable compiler.
sanitize-kernels: setup
	PROPTEST_CASES=32 RUSTFLAGS=-Zsanitizer=address $(UNSTABLE) cargo test -p ftsort-kernels --lib

# AddressSanitizer and UndefinedBehaviorSanitizer on the C and C++ programs of all cases on MPI.
sanitize-mpi: build
	FTSORT_SANITIZER=address,undefined FTSORT_TESTS=all $(WITH_RELEASE) cargo test $(TESTED) --test mpi

# ThreadSanitizer on the tests of the threads of kernels, monitors and probes, with the stable compiler. It needs a
# standard library that is compiled with it too; rustup fetches the source.
races: setup
	rustup component add rust-src
	PROPTEST_CASES=8 RUSTFLAGS=-Zsanitizer=thread $(UNSTABLE) cargo test -Zbuild-std -p ftsort-kernels -p ftsort-core -p ftsort \
	  --lib -- thread pool plain:: memory:: group::monitor liveness

# Installs cargo-tarpaulin into target/tools.
coverage: setup
	$(RUN) python3 scripts/coverage.py

# SHARD=K/N tries every N-th change from the K-th.
mutants: setup
	$(RUN) python3 scripts/mutants.py $(if $(SHARD),--shard $(SHARD))

install-check: setup
	$(RUN) python3 scripts/check_install.py --profile $(PROFILE) --features "$(FEATURES)"

kills-short: build
	$(RUN) python3 scripts/kill_table.py --short --profile $(PROFILE)
	$(RUN) python3 scripts/random_kills.py --short --profile $(PROFILE)

kills-medium: build
	$(RUN) python3 scripts/kill_table.py --repair agree --runs 3

kills: build
	$(RUN) python3 scripts/kill_table.py
	$(RUN) python3 scripts/kill_rounds.py
	$(RUN) python3 scripts/random_kills.py --runs $(or $(RUNS),500) --mb 20,200 --csv bench-out/random_kills.csv
	$(RUN) python3 scripts/random_kills.py --runs $(or $(RUNS),500) --modes protected,free,successive --stores memory:1 \
	  --csv bench-out/random_kills_modes.csv
	$(RUN) python3 scripts/query_kills.py --runs 100
	$(RUN) python3 scripts/external_kills.py --runs 100
	$(RUN) python3 scripts/random_kills.py --measure --csv bench-out/unprotected.csv

# A failing seed is printed with the command that repeats it.
chaos: build
	$(RUN) python3 scripts/chaos.py --minutes $(or $(MINUTES),10) $(if $(SEED),--seed "$(SEED)")

hosts: build
	$(RUN) python3 scripts/hosts.py

explore: setup
	$(RUN) cargo test --profile sim -p ftsort-model -- --ignored
	FTSORT_TESTS=explore $(RUN) cargo test --profile sim -p ftsort-sim --test simulator --test group
	$(RUN) cargo build --release -p ftsort-sim
	$(RUN) sh -c '"$$CARGO_TARGET_DIR"/release/ftsort-sim explore --seeds 1000000'
	$(RUN) sh -c '"$$CARGO_TARGET_DIR"/release/ftsort-sim explore --seeds 5000 --ranks 9-64'
	$(RUN) sh -c '"$$CARGO_TARGET_DIR"/release/ftsort-sim explore --seeds 5000 --ranks 1-64 --store parity:1:8 --store parity:2:8 \
	  --store parity:3:5'
	$(RUN) sh -c '"$$CARGO_TARGET_DIR"/release/ftsort-sim exhaust --memo "ranks=4 store=memory:1"'
	$(RUN) sh -c '"$$CARGO_TARGET_DIR"/release/ftsort-sim exhaust --failures 2 "ranks=8 store=memory:1"'

fuzz: setup
	$(RUN) python3 scripts/fuzz.py --minutes $(or $(MINUTES),1)

reliable-paper: setup
	$(RUN) cargo build --release -p ftsort-papers
	$(RUN) python3 scripts/reliable_paper.py

# Can be divided into several runs: rows that are in its CSV are not run again.
injections: build
	$(RUN) python3 scripts/injections.py $(if $(COUNT),--count "$(COUNT)")

# SIZE=30 REPETITIONS=3 STORES=memory,reload and so on, in place of 2^24 and 2^26 records with files, ten times.
paper: build
	$(RUN) python3 scripts/paper.py $(if $(SIZE),--sizes "$(SIZE)") $(if $(REPETITIONS),--repetitions "$(REPETITIONS)") \
	  $(if $(RANKS),--ranks "$(RANKS)") $(if $(STORES),--stores "$(STORES)")

# SECTIONS="floor small" TURNS=1 and so on for a part of it.
bench: build
	$(RUN) python3 scripts/bench.py $(SECTIONS) $(if $(TURNS),--turns $(TURNS))

# Slow ranks by signals, and by quotas of control groups where that is allowed; and the cost of monitors
# where no rank is slow.
slowdown: build
	$(RUN) python3 scripts/slowdown.py --cost
	$(RUN) python3 scripts/slowdown.py $(if $(REPETITIONS),--repetitions "$(REPETITIONS)")
	$(RUN) python3 scripts/slowdown.py --kind cgroup $(if $(REPETITIONS),--repetitions "$(REPETITIONS)")

tree-paper: setup
	$(RUN) cargo build --release -p ftsort-papers
	@$(RUN) python3 scripts/tree_paper.py $(if $(PATTERNS),--patterns $(PATTERNS))

dgrp-paper: setup
	$(RUN) cargo build --release -p ftsort-papers
	@$(RUN) python3 scripts/dgrp_paper.py $(if $(SEED),--seed $(SEED))

dist: setup
	$(RUN) python3 scripts/dist.py $(if $(CHECK),--check)

# Packs the four crates of the library as for a registry. They were compiled by the other targets.
publish-check: setup
	$(RUN) cargo publish --dry-run --no-verify --allow-dirty -p ftsort-kernels -p ftsort-core -p ftsort-sim -p ftsort

# Prints one line where this is no Debian with an MPI of its own.
deb: setup
	$(RUN) python3 scripts/deb.py $(if $(CHECK),--check)

other-mpis: setup
	$(RUN) python3 scripts/other_mpis.py

# Installs Debian's packages of Slurm; prints one line where that is not possible.
slurm: build
	$(RUN) python3 scripts/slurm.py $(CASES)

wheel: setup
	$(RUN) python3 scripts/wheel.py

test-python: $(if $(WHEEL),wheel,build)
	$(RUN) python3 scripts/test_python.py $(if $(WHEEL),--wheel)

header: setup
	FTSORT_WRITE_HEADER=1 $(RUN) cargo test --test header
	$(RUN) python3 scripts/fortran.py
	$(RUN) python3 scripts/abi.py --write

# From the tables in docs/data; one picture is a run of the simulator.
pictures: setup
	$(RUN) python3 scripts/pictures.py
	$(RUN) cargo run --profile sim -p ftsort-sim -- replay --svg docs/pictures/round-with-failure.svg \
	  "ranks=4 seed=1 records=6 store=memory:1 failures=2@20"

site: doc
	python3 scripts/build_site.py

site-check: setup
	$(RUN) python3 scripts/check_man.py
	python3 scripts/check_site.py

clean:
	rm -rf target

distclean: clean
	rm -rf .env
