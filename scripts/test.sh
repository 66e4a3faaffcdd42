#!/usr/bin/env bash
# Run all tests in two processes side by side: those that drive whole systems, which mostly wait, and
# all others. The first one's words are shown when the others have ended; either may fail the run.
set -uo pipefail

bin=${BIN:-.venv/bin}
said=.make/test-e2e.log
mkdir -p .make
# Processes that tests start would compile all modules anew each time.
unset PYTHONDONTWRITEBYTECODE

lane() { # name of its cache, then what to run
  local name=$1
  shift
  "$bin/python" -m pytest --durations=25 -o cache_dir=".make/pytest-$name" "$@"
}

began=$SECONDS
printf 'tests/e2e beside all others; its words follow theirs (meanwhile: tail -f %s)\n' "$said"
lane e2e tests/e2e >"$said" 2>&1 &
beside=$!
trap 'kill "$beside" 2>/dev/null' EXIT
trap 'exit 130' INT TERM

lane others tests/unit tests/contract tests/property tests/fault
others=$?
wait "$beside"
e2e=$?
cat "$said"
trap - EXIT
printf 'exit code %d of tests/e2e, %d of all others; %d seconds\n' \
  "$e2e" "$others" $((SECONDS - began))
[ "$others" = 0 ] && [ "$e2e" = 0 ]
