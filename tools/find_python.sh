#!/bin/sh
# Prints the Python interpreter to use, or says in one line which to install.
# PYTHON names one outright.
case "$(uname -s)-$(uname -m)" in
  Linux-x86_64 | Linux-aarch64 | Darwin-arm64) ;;
  *) echo "TensorFlow 2.21 has builds for Linux on x86-64 and Arm and for macOS on Apple silicon; this is $(uname -s) on $(uname -m)." >&2; exit 1 ;;
esac
usable='import sys, ensurepip, venv; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12), (3, 13)))'
found=
for python in ${PYTHON:-python3.13 python3.12 python3.11 python3 python}; do
  if command -v "$python" > /dev/null; then
    if "$python" -c "$usable" 2> /dev/null; then
      command -v "$python"
      exit 0
    fi
    version=$("$python" --version 2> /dev/null) && found="$found; $python is $version"
  fi
done
echo "No usable ${PYTHON:-Python 3.11, 3.12 or 3.13} with venv was found$found: TensorFlow 2.21 and this lock are for Python 3.11 to 3.13; install one of them (on Debian 13: apt install python3 python3-venv; on Ubuntu 24.04: apt install python3.12 python3.12-venv)." >&2
exit 1
