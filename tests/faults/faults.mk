# The tiers that break things under the stager. Each starts what it needs and takes it away again; most need root.

.PHONY: test-faults

test-faults: installed ## break sources, disks and the machine under the stager (root; fuse3, strace, xfsprogs)
	@$(RUN_TESTS) -n $(WORKERS) -m faults tests/faults $(ARGS)
