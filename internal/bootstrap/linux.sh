#!/bin/sh
# Fetches the workspace agent from the server and becomes it. It never ends by itself: when something is wrong it says what,
# tries again where that can help, and otherwise stays, so that somebody can look.
ARCH=@ARCH@
url='${ACCESS_URL}'
export CODER_AGENT_URL="$url" CODER_AGENT_AUTH='${AUTH_TYPE}'

if [ -n "${TF_REATTACH_PROVIDERS:-}" ]; then
	# Started by the build itself, on its host: the build's folders and variables go away with it.
	unset TF_REATTACH_PROVIDERS TF_IN_AUTOMATION TF_CLI_CONFIG_FILE TF_APPEND_USER_AGENT TF_DISABLE_PLUGIN_TLS
	unset TF_LOG TF_LOG_CORE TF_LOG_PATH TF_LOG_PROVIDER CHECKPOINT_DISABLE GOGC TMPDIR
	HOME=$PWD
	export HOME
fi

stay() {
	echo "coder agent: $1" >&2
	echo "coder agent: waiting, so that you can look; end this process when you are done" >&2
	trap - EXIT
	while :; do sleep 3600; done
}

fetch() {
	if command -v curl >/dev/null 2>&1; then
		curl -fsSL --connect-timeout 15 -o "$1" "$2"
	elif command -v wget >/dev/null 2>&1; then
		wget -q -O "$1" "$2"
	elif command -v busybox >/dev/null 2>&1; then
		busybox wget -q -O "$1" "$2"
	else
		stay "cannot fetch the agent: install curl, wget or busybox in this workspace"
	fi
}

if [ "$CODER_AGENT_AUTH" = token ] && [ -z "${CODER_AGENT_TOKEN:-}" ]; then
	stay "CODER_AGENT_TOKEN is not set: the template has to pass coder_agent.<name>.token in it"
fi

dir=
for parent in /tmp "${TMPDIR:-}" /var/tmp "${HOME:-}" .; do
	[ -n "$parent" ] && dir=$(mktemp -d "$parent/coder.XXXXXX" 2>/dev/null) && break
done
[ -n "$dir" ] || stay "cannot make a folder for the agent in /tmp, /var/tmp or the home folder"

wait=1
until fetch "$dir/coder" "${url}bin/coder-linux-${ARCH}"; do
	echo "coder agent: fetching ${url}bin/coder-linux-${ARCH} failed (see above); next try in $wait s" >&2
	sleep "$wait"
	[ "$wait" -lt 30 ] && wait=$((wait * 2))
done
chmod 700 "$dir/coder" || stay "cannot make $dir/coder executable"

PATH=$dir:$PATH
CODER_AGENT_PROGRAM_DIR=$dir # the agent removes it when the workspace stops
export PATH CODER_AGENT_PROGRAM_DIR
# When exec fails, bash can go on, other shells only run the trap.
[ -z "${BASH_VERSION:-}" ] || shopt -s execfail
useless() {
	stay "$dir/coder does not run here: is the template's arch ($ARCH) this machine's ($(uname -m)), and may programs run in $dir?"
}
trap useless EXIT
exec "$dir/coder" agent
useless
