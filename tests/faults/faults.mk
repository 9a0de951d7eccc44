# The tiers that break things under the stager. Each starts what it needs and takes it away again; most need root.

.PHONY: test-faults test-uml test-nfs

test-faults: installed ## break sources, disks and the machine under the stager (root; fuse3, strace, xfsprogs)
	@$(RUN_TESTS) -n $(WORKERS) -m faults tests/faults $(ARGS)

test-uml: installed ## power loss, clock jumps and quotas in User-Mode Linux (root; user-mode-linux, kmod, iproute2, gcc)
	@$(RUN_TESTS) -m uml tests/faults $(ARGS)

test-nfs: installed ## stage from NFS through the kernel's own client, in User-Mode Linux (and nfs-ganesha)
	@$(RUN_TESTS) -m nfs tests/faults $(ARGS)
