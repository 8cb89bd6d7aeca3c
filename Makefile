# `make demo` and `make test` are all that a fresh machine needs: python3 (3.11+), venv and make.
PYTHON ?= python3
BIN := .venv/bin
LOCKS := deploy/requirements
ARGS ?=
SUITE ?=
# How long `make fuzz` tries, and what else it takes (`ARGS`).
SECONDS ?= 60
# Test processes, each with a Postgres and a vector engine of its own; a third one fills the waits of
# two cores (18 min instead of 20).
WORKERS ?= 3
# In the order of tests/spread.py: xdist's own puts the longest files last.
SPREAD := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-deep nightly lint types imports policy bench eval proxies clients mutation fuzz hostile lock check clean

# The time of the download is printed apart: it depends on the line, not on us.
.venv/run.stamp: $(LOCKS)/run.txt pyproject.toml
	@echo "setting up .venv: half a minute to a few minutes, once"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@start=$$(date +%s); $(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r $(LOCKS)/run.txt \
	  && $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e . \
	  && echo "set-up of .venv (download and install): $$(( $$(date +%s) - start )) s"
	@touch $@

.venv/dev.stamp: .venv/run.stamp $(LOCKS)/dev.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r $(LOCKS)/dev.txt
	@touch $@

demo: .venv/run.stamp
	@$(BIN)/python -m deploy.demo $(ARGS)

test: .venv/dev.stamp
	$(BIN)/python -m pytest $(SPREAD) $(ARGS)

test-deep: .venv/dev.stamp
	$(BIN)/python -m pytest $(SPREAD) -m "slow or not slow" $(ARGS)

# Maintainers, hours: promise G2 on 2,000 worlds of each law.
nightly: .venv/dev.stamp
	$(BIN)/python -m pytest $(SPREAD) --hypothesis-profile nightly tests/properties $(ARGS)

lint: .venv/dev.stamp
	$(BIN)/ruff format --check gateway policies retrieval tests deploy
	$(BIN)/ruff check gateway policies retrieval tests deploy
	$(BIN)/codespell gateway policies retrieval deploy README.md

types: .venv/dev.stamp
	$(BIN)/mypy

imports: .venv/dev.stamp
	$(BIN)/lint-imports

policy: .venv/dev.stamp
	$(BIN)/gateway policy fmt --check
	$(BIN)/gateway policy lint --strict
	$(BIN)/gateway policy verify

# The engines beside ours have an environment of their own: none is a dependency.
.venv-bench/stamp: $(LOCKS)/bench.txt
	@$(PYTHON) -m venv .venv-bench
	@.venv-bench/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r $(LOCKS)/bench.txt
	@touch $@

# The proxies, 300 MB, only for the suites that measure them.
bench: .venv/dev.stamp .venv-bench/stamp $(if $(filter proxy forward-auth,$(SUITE)),.venv-proxies/stamp)
	$(BIN)/python -m tests.bench $(SUITE) --json build/bench.json $(ARGS)

# How good retrieval is on the judged questions beside this repository, and whether that was lost.
# Six minutes on two quiet cores; `ARGS=--json` for figures, `ARGS="--save FILE"` for a new baseline.
eval: .venv/dev.stamp
	$(BIN)/python -m tests.retrieval.evaluate.peps build/judged/peps
	$(BIN)/gateway eval ../shared/data/retrieval-xquad ../shared/data/threads-clapnq build/judged/peps \
	  --baseline tests/retrieval/evaluate/baseline.json $(ARGS)

# The proxies that the tests put in front of the gateway, an environment of their own; nginx is the
# system's. Where one is missing its tests are skipped (in CI they fail).
.venv-proxies/stamp: $(LOCKS)/proxies.txt
	@$(PYTHON) -m venv .venv-proxies
	@.venv-proxies/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r $(LOCKS)/proxies.txt
	@touch $@

proxies: .venv-proxies/stamp

# The libraries that gateway/clients is made for, and a validator of the OpenAPI document: 320 MB, an
# environment of its own. Where it is missing their tests are skipped (in CI they fail).
.venv-clients/stamp: $(LOCKS)/clients.txt
	@$(PYTHON) -m venv .venv-clients
	@.venv-clients/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r $(LOCKS)/clients.txt
	@touch $@

clients: .venv-clients/stamp

# Maintainers, half an hour to an hour: does a test notice every small change of what decides?
.venv-mutation/stamp: $(LOCKS)/dev.txt $(LOCKS)/mutation.txt
	@$(PYTHON) -m venv .venv-mutation
	@.venv-mutation/bin/python -m pip install -q --disable-pip-version-check --require-hashes \
	  -r $(LOCKS)/dev.txt -r $(LOCKS)/mutation.txt
	@touch $@

mutation: .venv-mutation/stamp
	PATH="$(CURDIR)/.venv-mutation/bin:$$PATH" nice mutmut run --max-children 1 $(ARGS)
	.venv-mutation/bin/mutmut results

# Maintainers: coverage-guided, from the shipped rules and every known trap (Linux, Python 3.11 to 3.13).
.venv-fuzz/stamp: $(LOCKS)/fuzz.txt
	@$(PYTHON) -m venv .venv-fuzz
	@.venv-fuzz/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r $(LOCKS)/fuzz.txt
	@touch $@

fuzz: .venv-fuzz/stamp
	nice .venv-fuzz/bin/python -m tests.fuzz --seconds $(SECONDS) $(ARGS)

# Maintainers: ten minutes and 200,000 requests of a random client against a running gateway.
hostile: .venv/dev.stamp
	$(BIN)/python -m pytest -n 0 -s -m slow tests/adversary $(ARGS)

check: lint types imports policy test

# Maintainers: write the locks anew. Needs pip-tools; never leaves a registry's address in a file.
lock: .venv/dev.stamp
	$(PYTHON) -m venv .venv/lock && .venv/lock/bin/pip install -q pip-tools
	cd $(LOCKS) && for f in run dev bench proxies clients mutation fuzz; do ../../.venv/lock/bin/pip-compile -q --strip-extras --allow-unsafe --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options -o $$f.txt $$f.in; done

clean:
	rm -rf .venv .venv-* build mutants *.egg-info
