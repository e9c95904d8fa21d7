#!/usr/bin/env bash
# For machines that reach Debian's packages and PyPI but no image registry. Makes
#   - the base image squeak-dist-base, of Debian's own Python (debootstrap; needs root);
#   - deploy/docker/wheelhouse, with which the image is built without a network.
# Both are kept until what they are made of changes. Prints nothing but progress, on stderr.
#     deploy/docker/offline.sh && BASE_IMAGE=squeak-dist-base docker-compose build
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
base=${BASE_IMAGE:-squeak-dist-base}
python=${PYTHON:-python3}
say() { echo "offline.sh: $*" >&2; }

make_base() {
    if ! command -v debootstrap >/dev/null; then
        say "installing debootstrap"
        { apt-get update && apt-get install --yes --no-install-recommends debootstrap; } >&2
    fi
    local suite mirror root
    # shellcheck source=/dev/null
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    # The mirror that this machine's own apt uses; debootstrap's default where it tells none.
    # shellcheck disable=SC2016  # apt-get itself fills in REPO_URI
    mirror=$(apt-get indextargets --format '$(REPO_URI)' \
        'Created-By: Packages' "Codename: $suite" 'Component: main' | head -n 1)
    root=$(mktemp -d)
    # shellcheck disable=SC2064  # the folder of now
    trap "rm -rf '$root'" EXIT
    say "Debian $suite with Python, in a folder: about a minute"
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates \
        "$suite" "$root/debian" ${mirror:+"$mirror"} >"$root/log" 2>&1 || {
        tail -n 20 "$root/log" >&2
        exit 1
    }
    rm -rf "$root"/debian/var/cache/apt/archives/*.deb "$root"/debian/var/lib/apt/lists/* \
        "$root"/debian/usr/share/{doc,man,locale}/*
    say "import as $base"
    tar --create --directory "$root/debian" . |
        docker import --change 'CMD ["python3"]' - "$base" >/dev/null
}

make_wheelhouse() {
    local version wanted
    version=$(docker run --rm --network none "$base" \
        python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$python" "$here/requirements.py" "$top/pyproject.toml" >"$here/wheelhouse/requirements.txt"
    wanted=$(cat "$here/wheelhouse/requirements.txt" "$top/constraints.txt" "$0" | sha256sum)
    wanted="$version ${wanted%% *}"
    if [ "$(cat "$here/wheelhouse/made-of" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    say "wheels for Python $version: about half a minute"
    rm -f "$here"/wheelhouse/*.whl
    "$python" -m pip download --quiet --dest "$here/wheelhouse" --only-binary :all: \
        --python-version "$version" --constraint "$top/constraints.txt" \
        --requirement "$here/wheelhouse/requirements.txt" hatchling >&2
    echo "$wanted" >"$here/wheelhouse/made-of"
}

docker image inspect "$base" >/dev/null 2>&1 || make_base
make_wheelhouse
say "ready: BASE_IMAGE=$base"
