#!/bin/sh
# Downloads the workspace agent from the server and executes it. The script never exits: on a problem it prints the cause,
# retries if that can help, and otherwise keeps running so that a user can inspect the workspace.
ARCH=@ARCH@
program=coder-@OS@-$ARCH
key='@KEY@'
url='${ACCESS_URL}'
export CODER_AGENT_URL="$url" CODER_AGENT_AUTH='${AUTH_TYPE}'

if [ -n "${TF_REATTACH_PROVIDERS:-}" ]; then
	# Started by the build itself, on its host: the build's folders and variables disappear with it.
	unset TF_REATTACH_PROVIDERS TF_IN_AUTOMATION TF_CLI_CONFIG_FILE TF_APPEND_USER_AGENT TF_DISABLE_PLUGIN_TLS
	unset TF_LOG TF_LOG_CORE TF_LOG_PATH TF_LOG_PROVIDER CHECKPOINT_DISABLE GOGC TMPDIR
	HOME=$PWD
	export HOME
fi

stay() {
	echo "coder agent: $1" >&2
	report "$1"
	echo "coder agent: waiting, so that you can look; end this process when you are done" >&2
	trap - EXIT
	while :; do sleep 3600 9<&-; done
}

# try PROGRAM ARGUMENT...: runs a downloader if there is one. Its output goes to $dir/said.
try() {
	command -v "$1" >/dev/null 2>&1 || return 127
	LC_ALL=C "$@" 2>"$dir/said"
}

# useful CODE: whether a downloader's status says something about the download. 1 and 2 are those of options and addresses that it does not
# know (and all failures of busybox), the highest ones those of a missing or crashed program: another may do it. A refused certificate has
# its own status, and ends the attempts: busybox accepts all. Texts decide nothing here, the other end can choose them.
useful() { [ "$1" -ne 1 ] && [ "$1" -ne 2 ] && [ "$1" -lt 126 ]; }

# fetch FILE URL: downloads with the first program that can.
fetch() {
	code=127
	for with in "curl -fsSL --connect-timeout 15 -o" "curl -fsSL -o" "wget -nv -T 60 -O" "wget -O" "busybox wget -O"; do
		# shellcheck disable=SC2086 # words, none of them with a blank
		try $with "$1" "$2"
		this=$?
		[ "$this" = 127 ] || code=$this
		[ "$this" != 0 ] || return 0
		if useful "$this"; then return "$this"; fi
	done
	[ "$code" != 127 ] || stay "cannot fetch the agent: install curl, wget or busybox in this workspace"
	return "$code"
}

# genuine: whether the makers of a release signed the program that was fetched. Whatever is between this machine and the server can change
# the program and the list, but cannot sign. Without openssl, the connection alone protects the program. The list is that of the server's
# release, which may be newer than this script; it has a line for each key while keys change.
genuine() {
	[ -n "$key" ] || return 0
	if ! command -v openssl >/dev/null 2>&1; then
		echo "coder agent: openssl is not installed here: the agent's signature is not verified" >&2
		return 0
	fi
	fetch "$dir/list" "${url}bin/SHA256SUMS.release" && fetch "$dir/list.sig" "${url}bin/SHA256SUMS.release.sig" || return 1
	printf '%s\n' "$key" >"$dir/key"
	valid=
	while read -r line; do
		printf '%s' "$line" | openssl base64 -d -A >"$dir/signature" 2>/dev/null
		if openssl dgst -sha256 -verify "$dir/key" -signature "$dir/signature" "$dir/list" >/dev/null 2>&1; then valid=yes; fi
	done <"$dir/list.sig"
	[ -n "$valid" ] || return 1
	sum=$(openssl dgst -sha256 -r "$dir/coder") || return 1
	while read -r want name; do
		if [ "$name" = "$program" ] && [ "$want" = "${sum%% *}" ]; then return 0; fi
	done <"$dir/list"
	return 1
}

# report TEXT: reports to the server, which shows the text with the workspace. The token is in the body, where no process list shows
# it. The report follows the same trust rules as fetch: it never goes to a server with an untrusted certificate.
report() {
	[ -n "$dir" ] && [ -n "${CODER_AGENT_TOKEN:-}" ] || return 0
	(umask 077 && printf '%s\n%s\n' "$CODER_AGENT_TOKEN" "$1" >"$dir/report") 2>/dev/null || return 0
	to=${url}api/v2/workspaceagents/me/startup-problem
	as='Content-Type: text/plain'
	for with in "curl --max-time 15" curl "wget -T 15 -t 1" wget busybox; do
		case $with in
		curl*) set -- -fsS -o /dev/null -H "$as" --data-binary "@$dir/report" ;;
		wget*) set -- -q -O /dev/null --header "$as" --post-file "$dir/report" ;;
		*) set -- wget -q -O /dev/null --post-file "$dir/report" ;;
		esac
		# shellcheck disable=SC2086 # words, none of them with a blank
		try $with "$@" "$to" >/dev/null
		if useful $?; then break; fi
	done
	rm -f "$dir/report"
}

# full: whether the agent's folder takes no more data. The downloader's own words cannot tell: they would be in that folder.
full() {
	printf '%65536s' . 2>/dev/null >"$dir/room"
	took=$?
	rm -f "$dir/room"
	[ "$took" != 0 ]
}

# room: the size and the free space of the agent's file system, where df is installed.
room() {
	df -Ph "$dir" 2>/dev/null | {
		read -r _ && read -r _ size _ free _ && echo "$free of $size free in "
	}
}

# why CODE: explains a failed download, from the downloader's exit status and output.
why() {
	if full; then
		echo "the workspace's disk is full: $(room)$dir; remove files that are not needed there, or enlarge it"
		return
	fi
	case $(cat "$dir/said" 2>/dev/null) in
	*expired* | *"not yet valid"* | *"not yet activated"*)
		if clock_is_wrong; then
			echo "this machine's clock is wrong: it says $(LC_ALL=C date -u '+%d %b %Y'), the server says $server_day; set it, certificates depend on it"
		else
			echo "the server's certificate is out of date: its operator has to renew it"
		fi
		;;
	*ertificate* | *"SSL"* | *"TLS"* | *"tls"*)
		echo "the server's certificate is not trusted here: add its authority to this workspace's certificates (update-ca-certificates), or name it in SSL_CERT_FILE and CURL_CA_BUNDLE"
		;;
	*"resolve"* | *"bad address"* | *"Name or service"* | *"unknown host"*)
		echo "the server's name does not resolve here: check this workspace's DNS, and that the server's access URL is one that workspaces can reach"
		;;
	*"404"*)
		echo "the server has no agent for $ARCH at that address: is another program behind the access URL, or this architecture not served?"
		;;
	*" 50"[0-9]*)
		echo "the server, or a proxy before it, cannot answer now"
		;;
	*"refused"* | *"Couldn't connect"* | *"Could not connect"* | *"Failed to connect"*)
		echo "nothing answers at the server's address: is the server up, and does a firewall let this workspace reach that port?"
		;;
	*"timed out"* | *"timeout"* | *"Timeout"* | *"unreachable"*)
		echo "the server does not answer: a firewall, or a proxy that is missing in https_proxy, keeps this workspace from it"
		;;
	*)
		echo "the downloader ended with status $1"
		;;
	esac
}

# clock_is_wrong compares days with the server's Date header. This needs no trust, because nothing depends on the result.
clock_is_wrong() {
	if command -v curl >/dev/null 2>&1; then
		head=$(curl -ksSI --max-time 15 "$url" 2>/dev/null)
	elif command -v wget >/dev/null 2>&1; then
		head=$(LC_ALL=C wget -q -S -T 15 -t 1 --no-check-certificate --spider "$url" 2>&1)
	else
		return 1
	fi
	server_day=
	while read -r name _ day month year _; do
		case $name in [Dd]ate:) server_day="$day $month $year" ;; esac
	done <<HEAD
$head
HEAD
	[ -n "$server_day" ] && [ "$server_day" != "$(LC_ALL=C date -u '+%d %b %Y')" ]
}

dir=
for parent in /tmp "${TMPDIR:-}" /var/tmp "${HOME:-}" .; do
	[ -n "$parent" ] && dir=$(mktemp -d "$parent/coder.XXXXXX" 2>/dev/null) && break
done
# A later agent removes this folder once no process has this pipe open (internal/scratch). It gets its name when it is open.
if [ -n "$dir" ] && mkfifo -m 600 "$dir/codermesh-alive.new" 2>/dev/null; then
	exec 9<>"$dir/codermesh-alive.new"
	mv "$dir/codermesh-alive.new" "$dir/codermesh-alive"
fi

if [ "$CODER_AGENT_AUTH" = token ] && [ -z "${CODER_AGENT_TOKEN:-}" ]; then
	stay "CODER_AGENT_TOKEN is not set: the template has to pass coder_agent.<name>.token in it"
fi
[ -n "$dir" ] || stay "cannot make a folder for the agent in /tmp, /var/tmp or the home folder"

wait=1
told=
while :; do
	if fetch "$dir/coder" "${url}bin/${program}"; then
		if genuine; then break; fi
		reason="it has no signature of the release that started this workspace: a proxy or a cache changed it, or the server was replaced by one that is not from a signed release; in that case, restart the workspace"
	else
		reason=$(why $?)
		cat "$dir/said" >&2
	fi
	echo "coder agent: fetching ${url}bin/${program} failed: $reason; next try in $wait s" >&2
	if [ "$told" != "$reason" ]; then
		report "The agent cannot be fetched: $reason"
		told=$reason
	fi
	sleep "$wait" 9<&-
	[ "$wait" -lt 30 ] && wait=$((wait * 2))
done
rm -f "$dir/said" "$dir/list" "$dir/list.sig" "$dir/key" "$dir/signature"
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
