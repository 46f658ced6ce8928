#!/usr/bin/env bash
# Runs every fuzz target of the repository, one after another, on one worker each, and prints a table. An input that fails
# is kept by Go beside the target, in testdata/fuzz, where every later `go test` tries it again.
#   FUZZTIME=40s  for each target        ONLY=REGEXP  of "package Target", for some of them
set -uo pipefail
cd "$(dirname "$0")/../.."
FUZZTIME=${FUZZTIME:-40s} ONLY=${ONLY:-.} GO=${GO:-go}
log=$(mktemp) && trap 'rm -f "$log"' EXIT
bad=0
printf '%-34s %-20s %12s  %s\n' package target executions result
while IFS=: read -r file _ line; do
	dir=$(dirname "$file") target=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/' <<<"$line")
	grep -qE -- "$ONLY" <<<"${dir#./} $target" || continue
	if $GO test -run '^$' -fuzz "^$target\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 5s -parallel 1 -timeout 30m "$dir" >"$log" 2>&1 </dev/null; then
		result=ok
	else
		result="FAILS: $(grep -m1 -E '^ +(--- FAIL|[a-z_]+_test.go:|panic:)|^panic:|Failing input|context deadline' "$log" | sed -E 's/^ +//')" bad=1
		cat "$log" >&2
	fi
	executions=$(grep -oE 'execs: [0-9]+' "$log" | tail -1 | cut -d' ' -f2)
	[ "$result" != ok ] || [ "${executions:-0}" -gt 0 ] || { result="FAILS: nothing was tried" bad=1; } # a table that cannot fail shows nothing
	printf '%-34s %-20s %12s  %s\n' "${dir#./}" "$target" "${executions:-0}" "$result"
done < <(grep -rnE '^func Fuzz[A-Za-z0-9_]*\(' --include='*_test.go' . | sort)
exit $bad
