#!/bin/sh
# Prints the Python interpreter to use, or says in one line which to install.
# TensorFlow Federated 0.87.0 runs on Python 3.9 to 3.11, of which 3.9 is past
# its end. PYTHON names one outright.
usable='import sys, ensurepip, venv; sys.exit(sys.version_info[:2] not in ((3, 10), (3, 11)))'
for python in ${PYTHON:-python3.11 python3.10 python3 python}; do
  if command -v "$python" > /dev/null && "$python" -c "$usable" 2> /dev/null
  then
    command -v "$python"
    exit 0
  fi
done
case "$(uname -s)-$(uname -m)" in
  Linux-x86_64) ;;
  *) echo "TensorFlow Federated has builds for Linux on x86-64 only; this is $(uname -s) on $(uname -m)." >&2; exit 1 ;;
esac
echo "No usable ${PYTHON:-Python 3.10 or 3.11} with venv was found: install one (on Debian 12: apt install python3.11 python3.11-venv; on Ubuntu 22.04: apt install python3.10 python3.10-venv)." >&2
exit 1
