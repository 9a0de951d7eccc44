# The tier that packs on a Ray cluster of two nodes, which the tests start on this machine.
#
#   RAY_KILLS  how often something is killed at a random moment   (make test-ray RAY_KILLS=100)

RAY_KILLS ?= 10

.PHONY: test-ray

test-ray: installed ## pack on a real Ray cluster, and kill it piece by piece (the first run downloads 80 MB)
	@$(BIN)/python -c 'import ray' 2>/dev/null || \
		$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt ray
	@export RAY_KILLS="$(RAY_KILLS)"; $(RUN_TESTS) -m ray tests/ray $(ARGS)
