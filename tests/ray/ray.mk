# The tier that packs on a Ray cluster of two nodes, which the tests start on this machine.
# It kills the driver and workers at random moments; how often is said by --kills (make test-ray ARGS="--kills 50").

.PHONY: test-ray

test-ray: installed ## pack on a real Ray cluster, and kill it piece by piece (the first run downloads 80 MB)
	@$(BIN)/python -c 'import ray' 2>/dev/null || \
		$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt ray
	@$(RUN_TESTS) -m ray tests/ray $(ARGS)
