#!/bin/bash
# All checks that need a GPU, in less than five minutes: join, telemetry, a fused PyTorch run with two slots on one GPU, out of memory,
# memory refusal. Prints one line of JSON on standard output and talks on standard error. Exit codes: 0 all passed or were skipped with
# their reason, 1 a check failed, 2 something needed is missing (named), 3 this machine has no GPU.
#
# Needs nvidia-smi and a Python with torch for CUDA (PYTHON, else python3). The program is TENSORTURN, else bin/tensorturn, else it is built.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-python3}

stop() { # code, why
	printf '{"ok":%s,"gpu":null,"why":"%s"}\n' "$([ "$1" = 0 ] && echo true || echo false)" "$2"
	echo "$2" >&2
	exit "$1"
}

if ! listed=$(timeout 20 nvidia-smi -L 2>/dev/null) || ! grep -q '^GPU ' <<<"$listed"; then
	stop 3 "this machine has no GPU that nvidia-smi lists: nothing was checked"
fi
command -v "$python" >/dev/null || stop 2 "no Python interpreter: name one with torch in PYTHON"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
program=${TENSORTURN:-$root/bin/tensorturn}
if [ ! -x "$program" ]; then
	command -v go >/dev/null || stop 2 "no program: build it with make build, or name it in TENSORTURN"
	program=$work/tensorturn
	echo "building the program" >&2
	(cd "$root" && CGO_ENABLED=0 go build -trimpath -o "$program" ./cmd/tensorturn) >&2 || stop 2 "the program cannot be built"
fi
timeout --signal=TERM --kill-after=10 290 "$python" "$here/checks.py" "$program" "$work" "$here/scripts" "$("$python" -c 'import sys; print(sys.executable)')"
code=$?
if [ "$code" = 124 ] || [ "$code" = 137 ]; then
	stop 1 "the checks took longer than 290 s"
fi
exit "$code"
