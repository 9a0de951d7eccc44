# The tier that needs Ceph's daemons. They are started by the tests, on loopback, and need no set-up.

.PHONY: test-ceph

test-ceph: installed ## pack to and stage from a real Ceph RGW that the tests start (needs Ceph's packages, about 3 minutes)
	@for program in ceph-mon ceph-osd radosgw; do command -v $$program >/dev/null || { \
		echo "test-ceph: $$program is missing; Debian, Ubuntu: apt-get install --no-install-recommends" \
			"ceph-mon ceph-osd radosgw ceph-mgr" >&2; exit 1; }; done
	@$(RUN_TESTS) -m ceph tests/ceph $(ARGS)
