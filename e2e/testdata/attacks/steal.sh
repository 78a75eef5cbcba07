# Runs in a build that an administrator started in another user's name, from a template of the administrator's: looks for that user's credentials.
for name in OWNERS_SESSION OWNERS_KEY; do
  eval "value=\$$name"
  [ -z "$value" ] || echo "open: steal: $name"
done
[ -z "$OWNERS_SESSION" ] || [ "$(curl -s -o /dev/null -w '%{http_code}' -H "Coder-Session-Token: $OWNERS_SESSION" "$1/api/v2/users/me")" != 200 ] || echo "open: steal: the session opens the server"
echo "closed: steal"
