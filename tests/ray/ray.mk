# The tier that packs on a Ray cluster of two nodes, which the tests start on this machine.
#
#   RAY_KILLS  how often something is killed at a random moment   (make test-ray RAY_KILLS=100)

RAY_KILLS ?= 10

.PHONY: test-ray

test-ray: installed ## pack on a real Ray cluster of two nodes, and kill it piece by piece (about 3 minutes)
	@export RAY_KILLS="$(RAY_KILLS)"; $(RUN_TESTS) -m ray tests/ray $(ARGS)
