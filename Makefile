# Everything is done in a virtual environment of the project's own, which the first target makes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The demo needs Tidelock alone; everything else needs the tools of development on top.
SLIM := .make/slim
READY := .make/ready
NEEDS := pyproject.toml constraints.txt scripts/setup.sh

.PHONY: help setup demo test check fault bench clean

help:  ## Show what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY)  ## Make the virtual environment and install what is needed

$(SLIM): $(NEEDS)
	@PYTHON=$(PYTHON) VENV=$(VENV) bash scripts/setup.sh
	@mkdir -p .make && touch $(SLIM)

$(READY): $(NEEDS)
	@PYTHON=$(PYTHON) VENV=$(VENV) EXTRAS=dev bash scripts/setup.sh
	@mkdir -p .make && touch $(SLIM) $(READY)

demo: $(SLIM)  ## Run a small pipeline end to end and show what happened
	@$(BIN)/python examples/demo.py

test: $(READY)  ## Run everything that must hold
	@BIN=$(BIN) bash scripts/test.sh

check: $(READY)  ## Lint, types, import directions, tidiness
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/unit/test_tidy.py

fault: $(READY)  ## Long seeded fault runs; TIDELOCK_FAULT_SECONDS and TIDELOCK_SEED set them
	TIDELOCK_FAULT_SECONDS=$${TIDELOCK_FAULT_SECONDS:-600} \
		$(BIN)/python -m pytest tests/fault tests/property --timeout=7200

bench: $(READY)  ## Print the figures that are claimed, as ratios measured in one run
	$(BIN)/python -m bench

clean:  ## Remove what was made
	rm -rf $(VENV) $(VENV)-outside .make build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
