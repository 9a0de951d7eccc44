# The benchmark, in an environment of its own: the peers pin older versions of what Shardferry uses.
#
#   VENV_BENCH  where that environment lies              (make VENV_BENCH=/elsewhere bench)
#   BENCH_ARGS  arguments for benchmarks/pack.py         (make bench BENCH_ARGS="--only tar --pairs 9")

VENV_BENCH ?= .venv-bench
BENCH_ARGS ?=

.PHONY: bench bench-environment clean-bench

bench: bench-environment ## time packing beside other packers (half an hour; several GB of packages the first time)
	@env -u PYTHONSAFEPATH $(VENV_BENCH)/bin/python benchmarks/pack.py $(BENCH_ARGS)

clean-bench: ## remove the benchmark's environment
	rm -rf "$(VENV_BENCH)"

bench-environment: $(VENV_BENCH)/.peers
	@$(VENV_BENCH)/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation \
		--force-reinstall .

$(VENV_BENCH)/.peers: benchmarks/requirements.txt
	$(if $(PYTHON),$(PYTHON),python3) -m venv "$(VENV_BENCH)"
	$(VENV_BENCH)/bin/python -m pip install -q --disable-pip-version-check --requirement benchmarks/requirements.txt
	@touch $@
