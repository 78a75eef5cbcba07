#!/bin/sh
# Fetches VS Code from the server once for each version, and starts it. It is a template of Terraform: see vscode.tf.
set -eu
all="$HOME/.local/share/coder-vscode"
dir="$all/${sha256}"
mkdir -p "$all"

if [ ! -d "$dir" ]; then
	work=$(mktemp -d "$all/.new-XXXXXX")
	trap 'rm -rf "$work"' EXIT
	coder fetch-archive "${archive}" --sha256 "${sha256}" --file "$work/archive"
	mkdir "$work/program"
	tar -xzf "$work/archive" -C "$work/program" --strip-components=1
	mv "$work/program" "$dir"
	# The versions before, and what an interrupted start left.
	for old in "$all"/* "$all"/.new-*; do
		[ "$old" = "$dir" ] || rm -rf "$old"
	done
fi

# Only the workspace's own processes reach the loopback address; the server asks visitors who they are.
if [ -x "$dir/bin/code-server" ]; then
	set -- "$dir/bin/code-server" --auth none --bind-addr "127.0.0.1:${port}" --disable-telemetry --disable-update-check
elif [ -x "$dir/bin/openvscode-server" ]; then
	set -- "$dir/bin/openvscode-server" --host 127.0.0.1 --port "${port}" --without-connection-token --telemetry-level off
else
	echo "The archive ${archive} has neither bin/code-server nor bin/openvscode-server." >&2
	exit 1
fi
nohup "$@" >"$all/.log" 2>&1 </dev/null &
