"""A runner of pytest on the files that Bazel names."""

import sys

import pytest

sys.exit(pytest.main(sys.argv[1:]))
