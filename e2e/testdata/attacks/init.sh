# An author of templates configures the programs that `terraform init` runs beside the operator's registry credentials: init.sh URL SESSION.
url="$1" session="$2"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
gitconfig() {
  mkdir -p "$1/objects" "$1/refs/heads"
  echo 'ref: refs/heads/main' >"$1/HEAD"
  printf '[core]\n\trepositoryformatversion = 0\n\tbare = %s\n[protocol "ext"]\n\tallow = always\n[url "ext::sh ./run.sh "]\n\tinsteadOf = https://example.invalid/\n' "$2" >"$1/config"
}
attack() { # NAME
  case "$(upload)" in
  *'changes how'* | *'git repository'*) ;;
  *) echo "open: init: $1" ;;
  esac
}
upload() {
  tar c . | curl -sS -H "Coder-Session-Token: $session" -H 'Content-Type: application/x-tar' --data-binary @- "$url/api/v2/files"
}
echo 'module "m" { source = "git::https://example.invalid/x.git" }' >main.tf
case "$(upload)" in
*'"hash"'*) ;;
*) echo "failed: init: a harmless archive is refused" ;;
esac
gitconfig .git false
attack ".git"
rm -rf .git
gitconfig . true
attack "a bare repository"
rm -rf objects refs HEAD config
for name in .gitconfig .netrc .terraformrc .hg/hgrc modules/m/.git/config; do
  mkdir -p "$(dirname "$name")"
  echo x >"$name"
  attack "$name"
  rm "$name"
done
echo "closed: init"
