# Frameworks that read our shards, in an environment of their own: they pin versions of what Shardferry uses.
#
#   VENV_INTEROP  where that environment lies    (make VENV_INTEROP=/elsewhere test-interop)

VENV_INTEROP ?= .venv-interop

.PHONY: test-interop clean-interop

test-interop: $(VENV_INTEROP)/.frameworks ## Energon, Hugging Face datasets and DALI read our shards (first run: an environment of its own)
	@$(VENV_INTEROP)/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation \
		--force-reinstall .
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && SHARDFERRY_INTEROP=1 \
		$(VENV_INTEROP)/bin/pytest -q --basetemp="$$scratch/tests" tests/interop/test_interop_frameworks.py $(ARGS)

clean-interop: ## remove the frameworks' environment
	rm -rf "$(VENV_INTEROP)"

$(VENV_INTEROP)/.frameworks: tests/interop/requirements.txt
	$(if $(PYTHON),$(PYTHON),python3) -m venv "$(VENV_INTEROP)"
	$(VENV_INTEROP)/bin/python -m pip install -q --disable-pip-version-check --requirement tests/interop/requirements.txt
	@touch $@
