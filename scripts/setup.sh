#!/usr/bin/env bash
# Make the virtual environment and install the tested set of packages: Tidelock with what it needs,
# or with EXTRAS=dev also what its tests and checks need. Debian packages that are missing are
# installed when that is allowed without asking; otherwise it says what to install.
set -euo pipefail

extras=${EXTRAS:-}
python=${PYTHON:-python3}
venv=${VENV:-.venv}

say() { printf '%s\n' "$*" >&2; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo -n "$@"
  else
    return 1
  fi
}

# First of the named Debian packages that can be had.
available() {
  local name
  for name in "$@"; do
    if apt-cache show "$name" >/dev/null 2>&1; then printf '%s' "$name"; return; fi
  done
  return 1
}

install_debian() { # what it is for, then candidate packages
  local purpose=$1 package
  shift
  if command -v apt-get >/dev/null && as_root true; then
    as_root apt-get update -qq >&2 || true
    if package=$(available "$@"); then
      say "Installing $package ($purpose) ..."
      as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >&2 && return 0
    fi
  fi
  say "$purpose is missing. Install it with: sudo apt-get install $1"
  return 1
}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  say "Tidelock needs Python 3.11 or newer as '$python'. Install it, or run: make PYTHON=python3.12 ..."
  exit 1
fi
if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  install_debian "Python's venv module" "python$version-venv" python3-venv || exit 1
fi

java_major() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java
  command -v "$java" >/dev/null || return 1
  "$java" -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -n 1
}
major=$(java_major || true)
if [ -z "$major" ] || [ "$major" -lt 17 ]; then
  # Everything but Spark works without it, so this does not stop the set-up.
  install_debian "Java 17 or newer, which Apache Spark needs," \
    openjdk-21-jre-headless openjdk-17-jre-headless default-jre-headless || true
fi

# What pip says is shown only when it failed: its warnings and notices tell a newcomer nothing.
run_pip() {
  local said
  said=$(mktemp)
  if ! "$venv/bin/python" -m pip --disable-pip-version-check "$@" >"$said" 2>&1; then
    cat "$said" >&2
    rm -f "$said"
    say "The packages could not be installed; pip's own words are above."
    say "Check the network and the room on the disk, then run the same command again."
    return 1
  fi
  rm -f "$said"
}

if [ ! -x "$venv/bin/python" ]; then
  say "Making a virtual environment in $venv ..."
  "$python" -m venv "$venv"
fi
if [ -z "$extras" ]; then
  say "Installing Tidelock and what it needs into $venv ..."
  run_pip install --constraint constraints.txt --editable .
else
  say "Installing Tidelock, and what its tests and checks need, into $venv ..."
  run_pip install --constraint constraints.txt --editable ".[$extras]"
fi
