# A page that resolves its own name to the server's address makes the first user: rebind.sh URL.
set -e
port="${1##*:}"
user='{"username": "eve", "email": "eve@evil.example", "password": "Evil-Horse-9-Battery"}'
post() { # HOST ORIGIN
  curl -sS -o /dev/null -w '%{http_code}' -H "Host: $1" -H "Origin: $2" -H 'Sec-Fetch-Site: same-origin' -H 'Content-Type: application/json' -d "$user" "$url/api/v2/users/first"
}
url="$1"
for host in "evil.example:$port" "127.0.0.1.evil.example:$port" "localhost:$port"; do
  status=$(post "$host" "http://$host")
  case "$status" in
  403 | 421) ;;
  *) echo "open: rebind: $host: $status" ;;
  esac
done
echo "closed: rebind"
