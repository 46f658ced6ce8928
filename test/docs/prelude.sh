# What stands before every block: strictness, the state of the block before, and what a reader does by hand.
set -euo pipefail
cd "$(cat "$DOCS_STATE/cwd")"
source "$DOCS_STATE/env"
trap 'pwd >"$DOCS_STATE/cwd"; export -p | grep -v " DOCS_" >"$DOCS_STATE/env"' EXIT

# serve runs a command that never ends in the background, and waits until it says that it works.
serve() {
	local log
	log=$(mktemp "$DOCS_STATE/log.XXXXXX")
	command tensorturn "$@" >"$log" 2>&1 &
	local pid=$!
	if ! timeout 30 grep -qm1 -E "is up|works for|tensorturn\." < <(tail -n +1 -f --pid=$pid "$log"); then
		cat "$log" >&2
		return 1
	fi
}

tensorturn() {
	local args=("${@//ttj_.../$(cat "$DOCS_STATE/token")}")
	case "$1 ${2-}" in
	"hub start") serve "$@" --listen "$DOCS_HUB" ;;
	"agent start") serve "$@" ;;
	"token create") command tensorturn "${args[@]}" | tee "$DOCS_STATE/token" ;;
	*) case " $* " in
		*" --follow "* | *" -f "*) serve "$@" ;;
		*) command tensorturn "${args[@]}" ;;
		esac ;;
	esac
}

# make test would run this test again.
make() { if [ "${1-}" != test ]; then command make "$@"; fi; }
