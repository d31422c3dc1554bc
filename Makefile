# make demo    set up, then train the embedded default
# make test    set up, then run the tests
# make check   set up, then check format, lint, types and tests
# make gpu     set up with TensorFlow's CUDA libraries
# make data    set up with pyarrow, for tables in Parquet and Arrow files
# make ray     set up with Ray, for --runtime=ray
# make native  add TFF's worker, for --runtime=native, after PORTABLE=1
#
# make test-all           set up, then run the tests, and more cases of each;
#                         SHARE=2/4 runs the second quarter of the latter
# make lint, test-slow, coverage    parts of it, and more
# make matrix  run two rounds of every method on every task
# make docs    build the documentation's site into build/site
# make dist    build sdist and wheel into dist/, and try the wheel
# make format  format
# make lock    write uv.lock and requirements.txt anew from pyproject.toml
#
# PYTHON=python3.13 names the Python to set up with, into .venv-python3.13;
# without it the newest of 3.13, 3.12 and 3.11 that there is, into .venv. uv sets
# up where it is installed, else pip does. PORTABLE=1 leaves out TFF's worker of
# 300 MB, which other machines than Linux on x86-64 cannot run: there it is set.

VENV ?= $(if $(PYTHON),.venv-$(notdir $(PYTHON)),.venv)
PY := $(VENV)/bin/python
UV := $(shell command -v uv 2> /dev/null)
PORTABLE ?= $(if $(filter Linux-x86_64,$(subst $() ,-,$(shell uname -sm))),,1)
# Test files at a time; each worker takes up to 2 GB of memory.
TEST_WORKERS ?= 2
# A test that hangs for ten minutes ends the run, and the stacks of its threads
# are printed; the longest takes a minute.
# Files are handed out in the order of tests/conftest.py, not by their number
# of tests.
FAST := -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder \
  --max-worker-restart=0 --durations=15 -o faulthandler_timeout=600 \
  -o faulthandler_exit_on_timeout=true

# Programs that tests start compile this project's modules once, not each again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-slow matrix coverage lint check docs dist format data gpu ray native lock clean

demo: $(VENV)/.installed
	$(PY) main.py

test: $(VENV)/.installed-ray $(VENV)/.installed-data
	$(PY) -m pytest $(FAST)

# Beside the tests of every check, what repeats one of them for more cases.
test-all: test
	$(PY) -m pytest $(FAST) -m 'exhaustive and not slow' $(addprefix --share=,$(SHARE))

test-slow: $(VENV)/.installed-ray $(VENV)/.installed-data
	$(PY) -m pytest -m slow

matrix: $(VENV)/.installed
	$(PY) -m pytest -m slow tests/test_matrix.py

# Coverage of what tests run, in processes that they start as well.
coverage: $(VENV)/.installed-dev $(VENV)/.installed-ray $(VENV)/.installed-data
	$(PY) -m coverage erase
	$(PY) -m coverage run -m pytest $(FAST) -m 'not slow'
	$(PY) -m coverage combine -q
	$(PY) -m coverage report

lint: $(VENV)/.installed-dev
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

check: lint test

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

dist: $(VENV)/.installed-dev
	rm -rf dist
	$(PY) -m build --no-isolation --outdir dist > /dev/null
	$(PY) -m build --no-isolation --wheel --outdir dist tools/tff_today > /dev/null
	$(PY) tools/check_dist.py dist

format: $(VENV)/.installed-dev
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

data: $(VENV)/.installed-data

gpu: $(VENV)/.installed-gpu

ray: $(VENV)/.installed-ray

native: $(VENV)/.installed
	grep '^tensorflow-federated==' requirements.txt | $(INSTALL) --force-reinstall -r /dev/stdin

lock:
	uv lock
	python3 tools/lock.py

clean:
	rm -rf $(VENV) build dist *.egg-info tools/tff_today/build tools/tff_today/*.egg-info

# Without the last two options pip refuses the set: see requirements.txt.
INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python

# Files alone: building makes folders beside them, which are always newer.
$(VENV)/.installed: requirements.txt $(wildcard $(addprefix tools/tff_today/*.,py pth toml)) | $(VENV)/bin/python
ifneq ($(PORTABLE),)
	$(PY) tools/portable_tff.py build/portable > /dev/null
	grep -v '^tensorflow-federated==' requirements.txt > build/portable/requirements.txt
	$(INSTALL) -r build/portable/requirements.txt
	$(INSTALL) build/portable/*.whl
else ifdef UV
	UV_PROJECT_ENVIRONMENT=$(VENV) uv sync --quiet --frozen --inexact --no-install-project
else
	$(INSTALL) --require-hashes -r requirements.txt
endif
	$(INSTALL) --no-index --no-build-isolation ./tools/tff_today
# As `uv run` does: importable from any folder, with the command tff-adaptive.
	$(INSTALL) --no-index --no-build-isolation --editable .
	@touch $@

$(VENV)/.installed-ray: requirements-ray.txt $(VENV)/.installed
	$(INSTALL) -r requirements-ray.txt
	@touch $@

$(VENV)/.installed-data: requirements-data.txt $(VENV)/.installed
	$(INSTALL) -r requirements-data.txt
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	$(INSTALL) -r requirements-dev.txt
	@touch $@

$(VENV)/.installed-docs: requirements-docs.txt | $(VENV)/bin/python
	$(INSTALL) -r requirements-docs.txt
	@touch $@

$(VENV)/.installed-gpu: requirements-gpu.txt $(VENV)/.installed
	$(INSTALL) -r requirements-gpu.txt
	@touch $@

$(VENV)/bin/python:
	@python=$$(sh tools/find_python.sh) && echo "setting up $(VENV) with $$python" && $(if $(UV),uv venv --quiet --seed --python "$$python",$$python -m venv) $(VENV)
