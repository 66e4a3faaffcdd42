#!/usr/bin/env bash
# Run all tests in three processes side by side, which take about as long as each other: those that
# drive whole systems, those that compare with models and engines, and those that need no Spark. The
# words of the first come as it goes, those of the others when all have ended; each may fail the run.
set -uo pipefail

bin=${BIN:-.venv/bin}
mkdir -p .make
# Processes that tests start would compile all modules anew each time.
unset PYTHONDONTWRITEBYTECODE

declare -A folders=(
  [systems]="tests/e2e"
  [models]="tests/property tests/contract"
  [units]="tests/unit tests/fault"
)
beside=(models units)

run_tests() { # the name of what
  # shellcheck disable=SC2086 # several folders
  "$bin/python" -m pytest --durations=25 -o cache_dir=".make/pytest-$1" ${folders[$1]}
}

began=$SECONDS
printf '%s; then the words of two other processes (meanwhile: tail -f .make/test-*.log)\n' \
  "${folders[systems]}"
declare -A started codes
for name in "${beside[@]}"; do
  run_tests "$name" >".make/test-$name.log" 2>&1 &
  started[$name]=$!
done
trap 'kill "${started[@]}" 2>/dev/null' EXIT
trap 'exit 130' INT TERM

run_tests systems
codes[systems]=$?
for name in "${beside[@]}"; do
  wait "${started[$name]}"
  codes[$name]=$?
done
trap - EXIT
failed=0
for name in "${beside[@]}"; do cat ".make/test-$name.log"; done
for name in systems "${beside[@]}"; do
  printf 'exit code %d of %s\n' "${codes[$name]}" "${folders[$name]}"
  [ "${codes[$name]}" = 0 ] || failed=1
done
printf '%d seconds\n' $((SECONDS - began))
exit "$failed"
