# Every command sets up what it needs, and does so again only when something changed. `make` alone lists them.
# Choose the interpreter with PYTHON=/path/to/python3 (3.11 or newer).
export PYTHON
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help demo test bench lint format sanitize soak pythons arm wheels lock docs clean

help: ## list the commands
	@sed -n 's/^\([a-z]*\): *## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: ## the main job: record a program, replay it on three stacks, write a page to look at
	@scripts/setup.sh build
	@.venv/bin/python scripts/rebuild.py
	@flock .cache/demo.lock .venv/bin/python examples/demo.py

test: ## all tests, native and Python, docs included (ARGS="-k streams" for some of the Python ones)
	@scripts/test.sh $(ARGS)

bench: ## measure against peers and write benchmarks/RESULTS.md (ARGS="import_time" for one question)
	@scripts/bench.sh $(ARGS)

lint: ## format, types, import order, stubs
	@scripts/lint.sh

format: ## lay out all code as `make lint` wants it
	@scripts/format.sh

sanitize: ## the native tests under ASan+UBSan and TSan
	@scripts/setup.sh --no-project build
	@.venv/bin/python scripts/sanitize.py

soak: ## attack it for a long time and write docs/reference/attacks.md (ARGS="--minutes 20 --seed 7")
	@scripts/soak.sh $(ARGS)

pythons: ## the unit tests on every other Python, with threads where there is no GIL (ARGS="3.14t" for one)
	@scripts/setup.sh --no-project build
	@.venv/bin/python scripts/pythons.py $(ARGS)

arm: ## the native tests on 64-bit ARM under qemu, with pages of 4, 16 and 64 KiB
	@scripts/system_packages.sh "$$(scripts/find_python.sh)" arm
	@scripts/setup.sh --no-project build
	@.venv/bin/python scripts/native.py arm

wheels: ## wheels for every Python into dist/, checked and tried out (ARGS="3.12 3.14t" for some)
	@scripts/setup.sh --no-project build
	@.venv/bin/python scripts/wheels.py $(ARGS)

lock: ## write down the newest versions of all tools, with digests, as the tested ones
	@scripts/setup.sh --no-project build
	@.venv/bin/python scripts/lock.py

docs: ## build the documentation into docs/_build (warnings are errors)
	@scripts/docs.sh

clean: ## remove everything these commands made
	@scripts/clean.sh
