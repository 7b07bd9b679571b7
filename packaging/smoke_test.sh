#!/usr/bin/env bash
# Installs a wheel into an empty environment, where no compiler is found, and uses it:
#
#     packaging/smoke_test.sh dist/aiomlc-0.1.0-py3-none-manylinux_2_31_x86_64.whl [PYTHON]
#
# PYTHON is the interpreter that makes the environment, by default python3.
set -euo pipefail

wheel=$(realpath "$1")
python=$(command -v "${2:-python3}")
root=$(realpath "$(dirname "$0")/..")
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT

"$python" -m venv "$environment"
# Only wheels: a source archive would need a compiler, which may be missing or not.
"$environment/bin/python" -m pip install --quiet --only-binary=:all: "$wheel[serve]"
cd "$environment"
env -i PATH="$environment/bin" HOME="$environment" PYTHONDONTWRITEBYTECODE=1 \
  "$environment/bin/python" -W error "$root/packaging/smoke_test.py"
