#!/bin/sh
# Installs the coder command line from the codermesh server that serves this script:
#
#   curl -fsSL https://coder.example.com/install.sh | sh
#   curl -fsSL https://coder.example.com/install.sh | sh -s -- --prefix "$HOME/.local"
#
# The script runs in any POSIX shell. It needs curl (or GNU wget), and sha256sum, shasum or openssl. With --key it installs only what the
# makers of a release signed, and needs openssl. That protects you if you have the key, and this script, from elsewhere than the server.
set -eu

usage() {
	cat <<END
Install the coder command line from $server.

Usage: curl -fsSL $server/install.sh | sh -s -- [OPTIONS]

Options:
  --prefix DIR     install into DIR/bin (default /usr/local for root, ~/.local for other users)
  --full           install the full program, which can also run a provisioner or a server; the server has it for its own platform
  --key KEY        install only what is signed with this release key: its file, or its text (default \$CODER_RELEASE_KEY)
  --no-completion  do not install shell completion
  --help           print this text
END
}

say() { printf '%s\n' "$*"; }

fail() {
	printf 'error: %s\n' "$1" >&2
	shift
	for line in "$@"; do printf 'Try: %s\n' "$line" >&2; done
	exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# fetch URL FILE: downloads, or fails without a complete file.
fetch() {
	if has curl; then
		curl -fsSL --retry 3 --connect-timeout 20 -o "$2" "$1"
	elif has wget && wget --version 2>/dev/null | grep -q 'GNU Wget'; then
		wget -q --tries=3 --connect-timeout=20 -O "$2" "$1" # other programs named wget do not check certificates
	else
		fail 'this machine has neither curl nor GNU wget' 'install curl with the package manager of this machine'
	fi
}

# checksum FILE: prints its SHA-256 in hex.
checksum() {
	if has sha256sum; then
		sha256sum <"$1"
	elif has shasum; then
		shasum -a 256 <"$1"
	else
		openssl dgst -sha256 -r <"$1"
	fi | cut -c 1-64
}

# platform: prints the platform's name in the names of the binaries, such as linux-amd64.
platform() {
	os=$(uname -s) arch=$(uname -m)
	case $os in
	Linux) os=linux ;;
	Darwin) os=darwin ;;
	MINGW* | MSYS* | CYGWIN*) fail 'this script does not install on Windows' "run in PowerShell: irm $server/install.ps1 | iex" ;;
	*) fail "there is no coder for the operating system $os" "use Linux, macOS or Windows" ;;
	esac
	case $arch in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	armv7* | armv8l) arch=armv7 ;;
	*) fail "there is no coder for the processor $arch" "use an amd64, arm64 or armv7 machine" ;;
	esac
	# A shell that macOS translates for Intel processors does not know better.
	if [ "$os-$arch" = darwin-amd64 ] && [ "$(sysctl -n sysctl.proc_translated 2>/dev/null || :)" = 1 ]; then arch=arm64; fi
	say "$os-$arch"
}

# is_list FILE: whether it holds checksums, and not a page of a proxy.
is_list() { [ -s "$1" ] && ! grep -Evq '^[0-9a-f]{64}  coder-[a-z0-9.-]+$' "$1"; }

# public_key KEY FILE: writes the key that a file, or the text, holds.
public_key() {
	if [ -f "$1" ]; then
		cat "$1"
	else
		case $1 in
		*BEGIN*) printf '%s\n' "$1" ;;
		*) printf -- '-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----\n' "$1" ;;
		esac
	fi >"$2"
	openssl pkey -pubin -in "$2" -noout 2>/dev/null ||
		fail "$1 is neither a public key nor the name of its file" 'take release.pub from the release, or from the source'
}

# signed LIST SIGNATURES KEY: whether one of the signatures, a line each, is by the key.
signed() {
	while read -r line; do
		printf '%s' "$line" | openssl base64 -d -A >"$work/signature" 2>/dev/null
		if openssl dgst -sha256 -verify "$3" -signature "$work/signature" "$1" >/dev/null 2>&1; then return 0; fi
	done <"$2"
	return 1
}

# clean: removes what is not installed, and the folders made for it if they are empty.
clean() {
	rm -rf "$work"
	[ -z "$made" ] || while rmdir "$bin" 2>/dev/null && [ "$bin" != "$made" ]; do bin=${bin%/*}; done
}

# completion SHELL FILE: installs the completion script of a shell, if the program can print it.
completion() {
	if "$bin/coder" completion "$1" </dev/null >"$work/completion" 2>/dev/null && mkdir -p "${2%/*}" 2>/dev/null; then
		cp "$work/completion" "$2" 2>/dev/null || say "Completion for $1 is not installed: cannot write $2"
	fi
}

main() {
	server=@SERVER@
	prefix='' name=coder complete=yes key=${CODER_RELEASE_KEY:-} list=SHA256SUMS
	while [ $# -gt 0 ]; do
		case $1 in
		--prefix)
			[ $# -gt 1 ] || fail '--prefix needs a folder' "--prefix $HOME/.local"
			prefix=$2
			shift
			;;
		--prefix=*) prefix=${1#*=} ;;
		--full) name=coder-full ;;
		--key)
			[ $# -gt 1 ] || fail '--key needs a public key' '--key release.pub'
			key=$2
			shift
			;;
		--key=*) key=${1#*=} ;;
		--no-completion) complete= ;;
		-h | --help)
			usage
			return
			;;
		*) fail "unknown option $1" '--help lists the options' ;;
		esac
		shift
	done
	if [ -z "$prefix" ]; then
		if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:?is not set}/.local; fi
	fi
	case $prefix in
	/*) ;;
	*) prefix=$PWD/$prefix ;;
	esac
	has sha256sum || has shasum || has openssl ||
		fail 'this machine has no program that can verify the download' 'install coreutils, perl or openssl'
	if [ -n "$key" ]; then
		list=SHA256SUMS.release
		has openssl || fail 'this machine has no openssl, which verifies signatures' 'install openssl'
		[ "$name" = coder ] || fail 'the server has no signature of the program that it runs' \
			'install the package of the release, after you verified it as its SECURITY.md says'
	fi
	target=$(platform)
	name=$name-$target
	bin=$prefix/bin

	# Below the target folder, so that the last step is one rename.
	made=$bin
	while [ ! -e "${made%/*}" ] && [ -n "${made%/*}" ]; do made=${made%/*}; done # the highest folder that does not exist yet
	[ ! -e "$bin" ] || made=
	{ mkdir -p "$bin" && work=$(mktemp -d "$bin/.coder-install.XXXXXX"); } 2>/dev/null ||
		fail "cannot write to $bin" 'run this as root, or choose another folder with --prefix'
	trap clean EXIT
	trap 'exit 1' HUP INT TERM

	if [ -n "$key" ]; then public_key "$key" "$work/key"; fi

	say "Installing $name from $server"
	if [ -n "$key" ]; then
		fetch "$server/bin/$list.sig" "$work/signatures" ||
			fail "cannot download $server/bin/$list.sig" 'ask the operator of the server whether it is from a signed release'
	fi
	fetch "$server/bin/$list" "$work/sums" || fail "cannot download $server/bin/$list" 'check that this machine reaches the server'
	[ -z "$key" ] || signed "$work/sums" "$work/signatures" "$work/key" ||
		fail "$server/bin/$list is not signed with the key" 'ask the operator of the server which release it is, and who signed it'
	is_list "$work/sums" || fail "$server/bin/$list is not a list of checksums" "check that no proxy or sign-in page answers for $server"
	want=$(sed -n "s/^\([0-9a-f]*\)  $name\$/\1/p" "$work/sums")
	if [ -z "$want" ]; then
		fail "the server has no $name, only $(sed 's/^[0-9a-f]*  //' "$work/sums" | tr '\n' ' ')" \
			'ask its operator to install a packaged release, which includes every platform'
	fi
	fetch "$server/bin/$name" "$work/coder" || fail "cannot download $server/bin/$name" 'run this command again'
	got=$(checksum "$work/coder")
	[ "$got" = "$want" ] ||
		fail "the download is damaged: its SHA-256 is $got, and the server's list says $want" \
			'run this command again; if it fails again, a proxy changes what the server sends'
	chmod 0755 "$work/coder"
	version=$("$work/coder" version </dev/null) ||
		fail "the program does not run on this machine, or $bin does not allow programs" 'choose another folder with --prefix'
	mv -f "$work/coder" "$bin/coder"

	if [ -n "$complete" ]; then
		completion bash "$prefix/share/bash-completion/completions/coder"
		completion zsh "$prefix/share/zsh/site-functions/_coder"
		completion fish "$prefix/share/fish/vendor_completions.d/coder.fish"
	fi

	say "Installed $version as $bin/coder"
	case :$PATH: in
	*:"$bin":*)
		found=$(command -v coder || :)
		if [ "$found" != "$bin/coder" ]; then say "Note: coder on your PATH is another program, $found."; fi
		;;
	*)
		say "$bin is not on your PATH. Add this line to your shell's profile:"
		say "  export PATH=\"$bin:\$PATH\""
		;;
	esac
	say "Sign in with: coder login $server"
}

# The last line: a download that was cut off runs nothing.
main "$@"
