# An administrator shares another user's running workspace with themselves and opens a shell in it: share.sh URL SESSION WORKSPACE OWNER/NAME CODER.
set -e
url="$1" session="$2" workspace="$3" name="$4" coder="$5"
me=$(curl -sS -H "Coder-Session-Token: $session" "$url/api/v2/users/me" | sed 's/^{"id":"\([^"]*\)".*/\1/')
status=$(curl -sS -o /dev/null -w '%{http_code}' -X PATCH -H "Coder-Session-Token: $session" -H 'Content-Type: application/json' \
  -d "{\"user_roles\": {\"$me\": \"use\"}}" "$url/api/v2/workspaces/$workspace/acl")
case "$status" in
403 | 404) ;;
*) echo "open: share: the answer $status" ;;
esac
if CODER_URL="$url" CODER_SESSION_TOKEN="$session" "$coder" ssh --wait no "$name" -- echo INSIDE 2>/dev/null | grep -q INSIDE; then
  echo "open: share: a shell"
fi
echo "closed: share"
