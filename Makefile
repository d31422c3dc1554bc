# make demo    set up, then train the embedded default
# make test    set up, then run the tests
# make check   set up, then check format, lint, types and tests
# make gpu     set up with TensorFlow's CUDA libraries

VENV ?= .venv
PY := $(VENV)/bin/python
# Test files at a time; each worker takes up to 2 GB of memory.
TEST_WORKERS ?= 2

.PHONY: demo test test-slow lint check format gpu clean

demo: $(VENV)/.installed
	$(PY) main.py

test: $(VENV)/.installed
	$(PY) -m pytest -n $(TEST_WORKERS) --dist loadfile

test-slow: $(VENV)/.installed
	$(PY) -m pytest -m slow

lint: $(VENV)/.installed-dev
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

check: lint test

format: $(VENV)/.installed-dev
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

gpu: $(VENV)/.installed-gpu

clean:
	rm -rf $(VENV)

# Without --no-deps pip refuses the set: see requirements.txt.
$(VENV)/.installed: requirements.txt | $(VENV)/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.txt
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-dev.txt
	@touch $@

$(VENV)/.installed-gpu: requirements-gpu.txt $(VENV)/.installed
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-gpu.txt
	@touch $@

$(VENV)/bin/python:
	@python=$$(sh tools/find_python.sh) && echo "setting up $(VENV) with $$python" && "$$python" -m venv $(VENV)
