package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// connectProxy is the HTTP proxy of an office: it passes CONNECT requests of clients that have its password, and nothing else.
type connectProxy struct {
	user *url.Userinfo
	ways map[string]string // from the address that clients request to the one that they get

	mu     sync.Mutex
	passed map[string]int // by the client's address
	others []string       // other requests
}

func (p *connectProxy) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go p.handle(c)
	}
}

func (p *connectProxy) handle(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	req, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	// On servers, net/http has no method for this header; its value has the format of Authorization.
	credential := http.Request{Header: http.Header{"Authorization": req.Header["Proxy-Authorization"]}}
	name, password, _ := credential.BasicAuth()
	want, _ := p.user.Password()
	to, known := p.ways[req.Host]
	p.mu.Lock()
	switch host, _, _ := net.SplitHostPort(c.RemoteAddr().String()); {
	case req.Method != http.MethodConnect || !known:
		p.others = append(p.others, req.Method+" "+req.Host)
	case name == p.user.Username() && password == want:
		p.passed[host]++
	default:
		known = false
	}
	p.mu.Unlock()
	if req.Method != http.MethodConnect || !known {
		io.WriteString(c, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
		return
	}
	far, err := net.Dial("tcp", to)
	if err != nil {
		io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		return
	}
	defer far.Close()
	io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() {
		io.Copy(far, in)
		far.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(c, far)
}

// office is a network namespace whose only way out is a proxy.
type office struct{ name, address, proxy string }

// offices makes namespaces with wires to the test's own namespace, in which their proxy listens. Packets go no further.
func offices(t *testing.T, p *connectProxy, names ...string) []office {
	t.Helper()
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	var made []office
	for _, name := range names {
		wire := subnet()
		near := wire + "1"
		o := office{fmt.Sprintf("px%d%s", os.Getpid(), name), wire + "2", ""}
		run("ip", "netns", "add", o.name)
		t.Cleanup(func() { exec.Command("ip", "netns", "del", o.name).Run() })
		run("ip", "-n", o.name, "link", "set", "lo", "up")
		run("ip", "link", "add", o.name, "type", "veth", "peer", "name", "eth0", "netns", o.name)
		t.Cleanup(func() { exec.Command("ip", "link", "del", o.name).Run() })
		run("ip", "addr", "add", near+"/30", "dev", o.name)
		run("ip", "link", "set", o.name, "up")
		run("ip", "-n", o.name, "addr", "add", o.address+"/30", "dev", "eth0")
		run("ip", "-n", o.name, "link", "set", "eth0", "up")
		l, err := net.Listen("tcp", near+":0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go p.serve(l)
		o.proxy = (&url.URL{Scheme: "http", User: p.user, Host: l.Addr().String()}).String()
		made = append(made, o)
	}
	return made
}

// in returns the prefix of a command that runs in the office, with its proxy and the server's URL.
func (o office) in(proxy, url string) []string {
	return []string{"ip", "netns", "exec", o.name, "env", "HTTPS_PROXY=" + proxy, "CODER_URL=" + url}
}

// officeTemplate starts an agent behind the proxy: its folder, the URL of the server, the proxy, its authorities and the program.
const officeTemplate = `terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace" "me" {}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}
resource "terraform_data" "process" {
  count = data.coder_workspace.me.start_count
  provisioner "local-exec" {
    command = "cd %[1]s; HOME=%[1]s CODER_AGENT_TOKEN=${coder_agent.main.token} CODER_AGENT_URL=%[2]s HTTPS_PROXY='%[3]s' SSL_CERT_FILE=%[4]s setsid %[5]s agent >%[1]s/agent.log 2>&1 </dev/null &"
  }
}
`

// TestHTTPSProxy: where an HTTPS proxy with a password is the only way out, a laptop, an agent and an external provisioner work. The
// API, the coordinator's websocket and the relay all go through it.
func TestHTTPSProxy(t *testing.T) {
	t.Parallel()
	asRoot(t)
	const outside = "192.0.2.7" // the server's address as the offices know it: no packet goes there
	d := prepare(t, "--provisioner-daemons=0")
	cert, key := selfSigned(t, d.dir, net.ParseIP(outside))
	authorities, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	d.base = "https://127.0.0.1:" + d.port
	d.web.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	d.args = append(d.args, "--tls-address", "127.0.0.1:"+d.port, "--tls-cert-file", cert, "--tls-key-file", key, "--http-address=")
	d.extra = []string{"CODER_PROVISIONER_DAEMON_PSK=" + provisionerKey, "CODER_CLIENT_TLS_CA_FILE=" + cert, "SSL_CERT_FILE=" + cert}
	p := &connectProxy{
		user: url.UserPassword("ada", "s3cret word"), passed: make(map[string]int),
		ways: map[string]string{outside + ":" + d.port: "127.0.0.1:" + d.port},
	}
	places := offices(t, p, "w", "l")
	work, laptop := places[0], places[1]
	serverURL := "https://" + outside + ":" + d.port
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	d.coder(d.firstLogin()...)

	daemon := d.prepareProvisioner("rack")
	daemon.in = work.in(work.proxy, serverURL)
	daemon.start()
	home := filepath.Join(d.dir, "agent")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	d.push("office", fmt.Sprintf(officeTemplate, home, serverURL, work.proxy, cert, coder))
	d.coder("create", "dev", "-t", "office", "-y")

	from := func(ctx context.Context, proxy string, args ...string) *exec.Cmd {
		plain := d.command(ctx, args...)
		line := append(append(laptop.in(proxy, serverURL), coder), args...)
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		cmd.Env, cmd.Dir, cmd.WaitDelay = plain.Env, plain.Dir, plain.WaitDelay
		return cmd
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*settle)
	defer cancel()
	sent := make([]byte, 2<<20)
	rand.Read(sent)
	back := from(ctx, laptop.proxy, "ssh", "dev", "--", "cat")
	back.Stdin = bytes.NewReader(sent)
	var stderr strings.Builder
	back.Stderr = &stderr
	got, err := back.Output()
	if err != nil || !bytes.Equal(got, sent) {
		agentLog, _ := os.ReadFile(filepath.Join(home, "agent.log"))
		t.Fatalf("2 MiB and back: got %d bytes (%v)\n%s\nagent:\n%s", len(got), err, stderr.String(), agentLog)
	}
	if out, err := from(ctx, laptop.proxy, "ping", "-n", "3", "dev").CombinedOutput(); err != nil || strings.Contains(string(out), "p2p") || !strings.Contains(string(out), "pong") {
		t.Errorf("ping: got %q (%v), want relayed answers", out, err)
	}
	for name, proxy := range map[string]string{
		"no proxy": "", "a wrong password": strings.Replace(laptop.proxy, "s3cret", "another", 1),
	} {
		if out, err := from(ctx, proxy, "list").CombinedOutput(); err == nil {
			t.Errorf("%s: the server was reached: %q", name, out)
		} else if proxy != "" && !strings.Contains(string(out), "Proxy Authentication Required") {
			t.Errorf("%s: the error %q does not name the reason", name, out)
		}
	}

	p.passedAll(t, map[string]office{"the laptop": laptop, "agent and provisioner": work})
}

// passedAll checks that all of some offices' connections went through the proxy to the server.
func (p *connectProxy) passedAll(t *testing.T, offices map[string]office) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.others) > 0 {
		t.Errorf("the proxy was asked for %q", p.others)
	}
	// At least three connections each: that of the API or RPC, the coordinator's and the relay's.
	for what, o := range offices {
		if p.passed[o.address] < 3 {
			t.Errorf("%s made %d connections through the proxy", what, p.passed[o.address])
		}
	}
}
