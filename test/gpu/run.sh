#!/bin/bash
# All checks that need a GPU, in less than five minutes: join, telemetry, a benchmark, a fused PyTorch run with two slots on one GPU, out of memory,
# memory refusal. Prints one line of JSON on standard output and talks on standard error. Exit codes: 0 all passed, 1 a check failed,
# 2 something needed is missing (named), 3 this machine has no GPU.
#
# Needs nvidia-smi and a Python with torch for CUDA (PYTHON, else python3). The program is TENSORTURN, else bin/tensorturn, else it is built.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-python3}

limit=290       # seconds for everything: five minutes with some to spare
build_limit=150 # of them for the build; what it leaves is for the checks

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
	(cd "$root" && CGO_ENABLED=0 timeout "$build_limit" go build -trimpath -o "$program" ./cmd/tensorturn) >&2 ||
		stop 2 "the program cannot be built within $build_limit s: build it before with make build, or name it in TENSORTURN"
fi
interpreter=$(timeout 20 "$python" -c 'import sys; print(sys.executable)') || stop 2 "the Python interpreter does not start"
timeout --signal=TERM --kill-after=10 "$((limit - SECONDS))" "$python" "$here/checks.py" "$program" "$work" "$here/scripts" "$interpreter"
code=$?
if [ "$code" = 124 ] || [ "$code" = 137 ]; then
	stop 1 "the checks took longer than $limit s"
fi
exit "$code"
