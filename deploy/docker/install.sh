#!/bin/sh
# Steps of the Dockerfile; from wheels alone where the wheelhouse has any.
#     install.sh dependencies    /opt/venv: what pyproject.toml asks for, held by constraints.txt
#     install.sh package         /opt/package: squeak_dist itself, to be laid over /opt/venv
set -eu

if ls wheelhouse/*.whl >/dev/null 2>&1; then
    export PIP_NO_INDEX=1 PIP_FIND_LINKS="$PWD/wheelhouse"
fi
export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

case "$1" in
dependencies)
    python3 -m venv /opt/tools
    /opt/tools/bin/pip install --quiet --constraint constraints.txt hatchling
    # The environment has no pip of its own: nothing is installed in a running container.
    python3 -m venv --without-pip /opt/venv
    python3 requirements.py pyproject.toml >requirements.txt
    /opt/tools/bin/pip --python /opt/venv/bin/python install --quiet \
        --only-binary :all: --constraint constraints.txt --requirement requirements.txt
    ;;
package)
    /opt/tools/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
    /opt/tools/bin/pip --python /opt/venv/bin/python install --quiet --no-deps \
        --prefix /opt/package dist/*.whl
    ;;
*)
    echo "usage: install.sh dependencies|package" >&2
    exit 2
    ;;
esac
