# The benchmark, in an environment of its own: the peers pin older versions of what Shardferry uses.
#
#   VENV_BENCH  where that environment lies              (make VENV_BENCH=/elsewhere bench)
#   BENCH_ARGS  arguments for the benchmark's program    (make bench BENCH_ARGS="--only tar --pairs 9")

VENV_BENCH ?= .venv-bench
BENCH_ARGS ?=

.PHONY: bench bench-load bench-environment clean-bench

bench: bench-environment ## time packing beside other packers (half an hour; several GB of packages the first time)
	@env -u PYTHONSAFEPATH $(VENV_BENCH)/bin/python benchmarks/pack.py $(BENCH_ARGS)

bench-load: bench-environment ## time loading beside other loaders
	@env -u PYTHONSAFEPATH $(VENV_BENCH)/bin/python benchmarks/load.py $(BENCH_ARGS)

clean-bench: ## remove the benchmark's environment
	rm -rf "$(VENV_BENCH)"

bench-environment: $(VENV_BENCH)/.peers
	@$(VENV_BENCH)/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation \
		--force-reinstall .

$(VENV_BENCH)/.peers: benchmarks/requirements.txt
	$(if $(PYTHON),$(PYTHON),python3) -m venv "$(VENV_BENCH)"
	$(VENV_BENCH)/bin/python -m pip install -q --disable-pip-version-check --requirement benchmarks/requirements.txt
	@touch $@

# The same for the stager, beside copiers of files and of objects.
VENV_BENCH_STAGE ?= .venv-bench-stage

.PHONY: bench-stage clean-bench-stage

bench-stage: ## time staging beside cp, rsync and S3 copiers (20 minutes; needs rsync, and Ceph's packages for S3)
	$(if $(PYTHON),$(PYTHON),python3) -m venv "$(VENV_BENCH_STAGE)"
	$(VENV_BENCH_STAGE)/bin/python -m pip install -q --disable-pip-version-check --constraint constraints.txt \
		'.[s3]' pytest boto3
	@# the peers pin other versions of what Shardferry uses
	$(if $(PYTHON),$(PYTHON),python3) -m venv "$(VENV_BENCH_STAGE)/peers"
	$(VENV_BENCH_STAGE)/peers/bin/python -m pip install -q --disable-pip-version-check \
		--requirement benchmarks/requirements-stage.txt
	@env -u PYTHONSAFEPATH \
		PATH="$(abspath $(VENV_BENCH_STAGE))/bin:$$PATH:$(abspath $(VENV_BENCH_STAGE))/peers/bin" \
		$(VENV_BENCH_STAGE)/bin/python benchmarks/stage.py $(BENCH_ARGS)

clean-bench-stage: ## remove that environment
	rm -rf "$(VENV_BENCH_STAGE)"
