package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// site is a private network behind a masquerading router: one namespace for its host, and one for the router.
type site struct{ host, router string }

// hosts makes network namespaces: the server's, which the test reaches at address, and sites that reach only the server.
type hosts struct {
	t       *testing.T
	tag     string
	server  string
	address string // of the server, for all hosts
	made    int
}

func newHosts(t *testing.T) *hosts {
	t.Helper()
	wire := subnet()
	h := &hosts{t: t, tag: fmt.Sprintf("ce%d", os.Getpid()), address: wire + "1"}
	h.server = h.namespace("s")
	h.run("ip", "link", "add", h.tag+"t", "type", "veth", "peer", "name", "eth0", "netns", h.server)
	t.Cleanup(func() { exec.Command("ip", "link", "del", h.tag+"t").Run() })
	h.run("ip", "addr", "add", wire+"2/24", "dev", h.tag+"t")
	h.run("ip", "link", "set", h.tag+"t", "up")
	h.within(h.server, "ip", "addr", "add", h.address+"/24", "dev", "eth0")
	h.within(h.server, "ip", "link", "set", "eth0", "up")
	return h
}

func (h *hosts) run(args ...string) string {
	h.t.Helper()
	out, err := exec.CommandContext(h.t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (h *hosts) within(namespace string, args ...string) string {
	h.t.Helper()
	return h.run(append([]string{"ip", "netns", "exec", namespace}, args...)...)
}

func (h *hosts) namespace(name string) string {
	h.t.Helper()
	name = h.tag + name
	h.run("ip", "netns", "add", name)
	h.t.Cleanup(func() { exec.Command("ip", "netns", "del", name).Run() })
	h.within(name, "ip", "link", "set", "lo", "up")
	return name
}

// site creates a site. Its host accepts no connections, and its router forwards responses and what the nftables rule forward
// allows.
func (h *hosts) site(name, forward string) site {
	h.t.Helper()
	h.made++
	s := site{h.namespace(name), h.namespace(name + "r")}
	outside, inside := fmt.Sprintf("10.213.%d.", h.made), "192.168.7."
	h.run("ip", "link", "add", "wan", "netns", s.router, "type", "veth", "peer", "name", fmt.Sprintf("site%d", h.made), "netns", h.server)
	h.within(h.server, "ip", "addr", "add", outside+"1/24", "dev", fmt.Sprintf("site%d", h.made))
	h.within(h.server, "ip", "link", "set", fmt.Sprintf("site%d", h.made), "up")
	h.within(s.router, "ip", "addr", "add", outside+"2/24", "dev", "wan")
	h.within(s.router, "ip", "link", "set", "wan", "up")
	h.within(s.router, "ip", "route", "add", "default", "via", outside+"1")
	h.run("ip", "link", "add", "lan", "netns", s.router, "type", "veth", "peer", "name", "eth0", "netns", s.host)
	h.within(s.router, "ip", "addr", "add", inside+"1/24", "dev", "lan")
	h.within(s.router, "ip", "link", "set", "lan", "up")
	h.within(s.host, "ip", "addr", "add", inside+"2/24", "dev", "eth0")
	h.within(s.host, "ip", "link", "set", "eth0", "up")
	h.within(s.host, "ip", "route", "add", "default", "via", inside+"1")
	h.within(s.router, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
	h.rules(s.router, `table ip nat {
	chain out {
		type nat hook postrouting priority 100
		oifname "wan" masquerade
	}
}
table ip filter {
	chain forward {
		type filter hook forward priority 0; policy drop;
		ct state established,related accept
		iifname "lan" `+forward+`
	}
	chain input {
		type filter hook input priority 0; policy drop;
		iifname "lan" accept
	}
}
`)
	h.rules(s.host, `table inet filter {
	chain input {
		type filter hook input priority 0; policy drop;
		iif "lo" accept
		ct state established,related accept
	}
}
`)
	return s
}

// rules loads rules for packets in a namespace.
func (h *hosts) rules(namespace, text string) {
	h.t.Helper()
	cmd := exec.CommandContext(h.t.Context(), "ip", "netns", "exec", namespace, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("nft in %s: %v\n%s", namespace, err, out)
	}
}

func (s site) in() []string { return []string{"ip", "netns", "exec", s.host} }

// farTemplate is built where its tags lead, and has an agent that the test starts.
const farTemplate = `terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace" "me" {}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}
resource "terraform_data" "host" {
  count = data.coder_workspace.me.start_count
  input = coder_agent.main.id
  provisioner "local-exec" {
    command = "echo built-at-$(cat /proc/sys/net/ipv4/ip_forward)-$(cat /proc/net/fib_trie | grep -c 192.168.7.2)"
  }
}
`

// TestProvisionerBehindNAT: a provisioner behind a masquerading router that passes only outgoing HTTPS builds a template that needs
// its tags, on a machine other than the server's, and the agent of the workspace is behind another such router. There is no inbound
// connection to either, and only HTTPS and STUN to the server.
func TestProvisionerBehindNAT(t *testing.T) {
	t.Parallel()
	asRoot(t)
	h := newHosts(t)
	const port, stun = "8443", "3478"
	d := prepare(t, "--provisioner-daemons=0", "--tls-address", h.address+":"+port, "--stun-address", h.address+":"+stun)
	cert, key := selfSigned(t, d.dir, net.ParseIP(h.address))
	d.netns, d.base = h.server, "https://"+h.address+":"+port
	d.args = append(d.args, "--tls-cert-file", cert, "--tls-key-file", key)
	d.extra = append(d.extra, "CODER_PROVISIONER_DAEMON_PSK="+provisionerKey, "CODER_CLIENT_TLS_CA_FILE="+cert, "SSL_CERT_FILE="+cert)
	pem, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	d.web.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	rack := h.site("p", "tcp dport "+port+" accept")
	office := h.site("a", "accept")
	// The sites may begin connections only to the server's HTTPS port and STUN.
	h.rules(h.server, `table inet filter {
	counter https { }
	counter stun { }
	counter other { }
	counter probes { }
	chain input {
		type filter hook input priority 0; policy accept;
		iifname != "site*" accept
		ct state established,related accept
		tcp dport `+port+` counter name https accept
		udp dport `+stun+` counter name stun accept
		meta l4proto tcp counter name other drop
		meta l4proto udp counter name probes drop
	}
}
`)

	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	d.coder(d.firstLogin()...)
	p := d.prepareProvisioner("rack", "--tag", "environment=on_prem", "--tag", "data_center=chicago", "--provisioner-isolation", "auto")
	p.in = rack.in()
	p.start()

	d.push("far", farTemplate, "--provisioner-tag", "environment=on_prem", "--provisioner-tag", "data_center=chicago")
	create := d.background("create", "dev", "-t", "far", "-y")
	d.startAgentAt(t, office, d.tokenInState(t, "dev"))
	if err := <-create.done; err != nil {
		t.Fatalf("create: %v\n%s", err, create.output.String())
	}
	if out := d.coder("ssh", "dev", "--", "cat /proc/net/fib_trie | grep -m1 -o 192.168.7.2"); out != "192.168.7.2\n" {
		t.Errorf("the workspace is not where its agent is: %q", out)
	}
	if out := d.coder("provisioner", "list"); !strings.Contains(out, "rack") || !strings.Contains(out, "environment=on_prem") {
		t.Errorf("provisioner list: %q", out)
	}
	d.coder("stop", "dev", "-y")

	counters := h.within(h.server, "nft", "list", "counters")
	count := func(name string) string {
		m := regexp.MustCompile(`counter ` + name + ` \{\s*packets (\d+)`).FindStringSubmatch(counters)
		if m == nil {
			t.Fatalf("no counter %s in %s", name, counters)
		}
		return m[1]
	}
	if count("https") == "0" {
		t.Error("no connection to the HTTPS port was counted: the test does not see what it should")
	}
	if got := count("other"); got != "0" {
		t.Errorf("%s connections to other ports of the server", got)
	}
	for _, s := range []site{rack, office} {
		// Probes for a direct path may come to a host's own UDP port; connections may not.
		if out := h.within(s.host, "ss", "-Hltn"); strings.Contains(out, "192.168.7.2") || strings.Contains(out, "0.0.0.0") || strings.Contains(out, "*:") {
			t.Errorf("a program listens at the site: %s", out)
		}
	}
}

// tokenInState waits for the agent's token in the state of a workspace that is being built.
func (d *deployment) tokenInState(t *testing.T, workspace string) (token string) {
	t.Helper()
	testwait.Until(t, "the agent's token is in the state", func() error {
		out, stderr, err := d.try("state", "pull", workspace)
		var state struct {
			Resources []struct {
				Type      string `json:"type"`
				Instances []struct {
					Attributes struct {
						Token string `json:"token"`
					} `json:"attributes"`
				} `json:"instances"`
			} `json:"resources"`
		}
		if err != nil || json.Unmarshal([]byte(out), &state) != nil {
			return fmt.Errorf("state pull: %s%s (%w)", out, stderr, err)
		}
		for _, r := range state.Resources {
			if r.Type == "coder_agent" && len(r.Instances) == 1 {
				token = r.Instances[0].Attributes.Token
			}
		}
		return testwait.Unless(token != "", "the state has no agent with a token: %s", out)
	})
	return token
}

// startAgentAt runs an agent on the host of a site, until the test ends.
func (d *deployment) startAgentAt(t *testing.T, office site, token string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	agent := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", office.host, coder}, "agent")...)
	agent.Env, agent.Dir = append(d.env("agent"), "CODER_AGENT_URL="+d.url()+"/", "CODER_AGENT_TOKEN="+token), d.dir
	agent.Cancel = func() error { return agent.Process.Signal(syscall.SIGTERM) }
	agent.WaitDelay = 10 * time.Second
	log, err := os.Create(filepath.Join(d.dir, "agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	agent.Stdout, agent.Stderr = log, log
	if err := os.MkdirAll(filepath.Join(d.dir, "home-agent"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = agent.Wait() // our signal ends it
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("agent:\n%s", text)
		}
	})
}
