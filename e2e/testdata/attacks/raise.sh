# A user administrator gives powers that they lack to an account of their own: raise.sh URL SESSION ORGANIZATION.
set -e
api() { # METHOD PATH BODY; prints the answer and, on a line of its own, the status
  curl -sS -X "$1" -H "Coder-Session-Token: $session" -H 'Content-Type: application/json' -d "$3" -w '\n%{http_code}\n' "$url/api/v2$2"
}
url="$1" session="$2" organization="$3"
made=$(api POST /users "{\"username\": \"puppet\", \"email\": \"puppet@evil.example\", \"password\": \"Evil-Horse-9-Battery\", \"login_type\": \"password\", \"organization_ids\": [\"$organization\"]}" | tail -n 1)
[ "$made" = 201 ] || echo "failed: raise: the new account: $made"
for role in owner template-admin auditor; do
  status=$(api PUT /users/puppet/roles "{\"roles\": [\"$role\"]}" | tail -n 1)
  [ "$status" = 403 ] || echo "open: raise: $role: $status"
done
for role in organization-admin organization-template-admin; do
  status=$(api PUT "/organizations/$organization/members/puppet/roles" "{\"roles\": [\"$role\"]}" | tail -n 1)
  [ "$status" = 403 ] || echo "open: raise: $role: $status"
done
status=$(api PUT /users/ada/password '{"password": "Evil-Horse-9-Battery"}' | tail -n 1)
[ "$status" = 403 ] || echo "open: raise: the owner's password: $status"
echo "closed: raise"
