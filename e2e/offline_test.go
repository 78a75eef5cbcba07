package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// offline runs a server, imports a template and uses a workspace in a network namespace whose only way out is a wire that nobody listens on. It then
// lists the addresses to which anything was sent, and sends a packet itself, which shows that the list would have it.
const offline = `
set -eu
mkdir -p "$HOME"
ip link set lo up
ip link add out type veth peer name nowhere
ip link set nowhere up
ip addr add 192.0.2.2/24 dev out
ip link set out up
ip route add default via 192.0.2.1
nft add table inet watch
nft 'add set inet watch seen { type ipv4_addr . inet_proto . inet_service; }'
nft 'add chain inet watch out { type filter hook output priority 0; }'
nft 'add rule inet watch out oifname "out" meta l4proto { tcp, udp } add @seen { ip daddr . meta l4proto . th dport } drop'
"$CODER" server --http-address 127.0.0.1:3000 > server.log 2>&1 &
server=$!
trap 'kill "$server"; wait "$server"' EXIT
until "$CODER" login http://127.0.0.1:3000 --first-user-username ada --first-user-email ada@example.com --first-user-password "$PASSWORD" > login.log 2>&1; do
	kill -0 "$server"
	sleep 0.5
done
"$CODER" templates init --id process process
"$CODER" templates push process -d process -y
"$CODER" create dev -t process -y
"$CODER" ssh dev -- echo in the workspace
"$CODER" delete dev -y
echo "seen before:" $(nft list set inet watch seen | grep elements)
echo hello > /dev/udp/192.0.2.99/9 || true
echo "seen after:" $(nft list set inet watch seen | grep elements)
`

// TestOffline checks that a server and its provisioners work without the internet, and that by default nothing is sent there.
func TestOffline(t *testing.T) {
	t.Parallel()
	asRoot(t)
	d := prepare(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*settle)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--net", "bash", "-c", offline)
	cmd.Dir = d.dir
	cmd.Env = append(d.env("admin"), "CODER="+coder, "PASSWORD="+password, "CODER_URL=http://127.0.0.1:3000", "CODER_ACCESS_URL=")
	out, err := cmd.CombinedOutput()
	log, readErr := os.ReadFile(filepath.Join(d.dir, "server.log"))
	if err != nil || readErr != nil {
		t.Fatalf("%v, %v\n%s\nserver's log:\n%s", err, readErr, out, log)
	}
	for _, want := range []string{"in the workspace\n", "seen before:\n", "192.0.2.99 . udp . 9"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output has no %q:\n%s", want, out)
		}
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "level=ERROR") {
			t.Errorf("the server complains: %s", line)
		}
	}
}
