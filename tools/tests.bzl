"""One Bazel test for each file of tests."""

def python_tests(name, srcs, data, deps):
    """Makes a py_test for every test file, and a suite of all of them.

    Args:
      name: Name of the suite.
      srcs: Files of tests, tests/FOLDER/test_NAME.py.
      data: Files that tests read.
      deps: What all tests need.
    """
    names = []
    for src in srcs:
        parts = src[len("tests/"):-len(".py")].split("/")
        parts[-1] = parts[-1][len("test_"):]
        test = "_".join(parts) + "_test"
        names.append(test)
        native.py_test(
            name = test,
            srcs = [src, "//tools:run_pytest.py"],
            main = "//tools:run_pytest.py",
            args = ["$(location %s)" % src],
            data = data,
            python_version = "PY3",
            size = "large",
            deps = deps,
        )
    native.test_suite(
        name = name,
        tests = names,
    )
