package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testport"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// TestAppThroughRegion opens a port of a workspace through a region proxy of the slim binary, as its owner and as another user, and reaches it there with OpenSSH.
// When the proxy is killed, the server takes its place.
func TestAppThroughRegion(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	bob := d.member("bob")
	d.coder("create", "dev", "-t", "process", "-y")
	testwait.Until(t, "the agent is connected", d.agentIs("dev", "connected"))
	app := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { fmt.Fprintf(rw, "app %s", r.URL.RequestURI()) }))
	defer app.Close()

	ssh := testport.Addr()
	at, kill := d.runRegion("eu", "--ssh-address", ssh)
	regionURL := func() string {
		var list struct {
			Regions []struct {
				Name string
				URL  string `json:"path_app_url"`
			}
		}
		d.get("/api/v2/regions", &list)
		return list.Regions[len(list.Regions)-1].URL
	}
	testwait.Until(t, "the region", func() error { return testwait.Equal(regionURL(), at) })

	open := func(base, token string) (int, string, string) {
		t.Helper()
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		server, err := url.Parse(d.url())
		if err != nil {
			t.Fatal(err)
		}
		jar.SetCookies(server, []*http.Cookie{{Name: "coder_session_token", Value: token, Path: "/"}})
		_, port, err := net.SplitHostPort(app.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/@ada/dev/apps/"+port+"/x?y=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/html")
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Jar: jar}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body), resp.Request.URL.Host
	}
	if status, body, host := open(at, d.token); status != http.StatusOK || body != "app /x?y=1" || "http://"+host != at {
		t.Fatalf("the owner at the region: %d %s from %s", status, body, host)
	}
	if status, body, _ := open(at, bob); status != http.StatusNotFound {
		t.Errorf("another user at the region: %d %s", status, body)
	}
	sshThroughRegion(t, d, ssh)
	kill()
	testwait.Until(t, "the server's own address", func() error { return testwait.Equal(regionURL(), d.url()) })
}

// sshThroughRegion reaches the workspace dev through the region's SSH gateway with OpenSSH: with a key that is allowed there, by sessions and by a jump, and not
// with one that is not.
func sshThroughRegion(t *testing.T, d *deployment, addr string) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	var gateway sdk.SSHGateway
	d.get("/api/v2/deployment/ssh-gateway", &gateway)
	if len(gateway.Regions) != 1 || gateway.Regions[0].Address != "localhost:"+port {
		t.Fatalf("users are shown %+v", gateway)
	}
	known, key, config := filepath.Join(d.dir, "region_hosts"), filepath.Join(d.dir, "region_key"), filepath.Join(d.dir, "region_config")
	mustRun(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "travel", "-f", key)
	common := fmt.Sprintf("\tUserKnownHostsFile %s\n\tIdentityFile %s\n\tIdentitiesOnly yes\n\tLogLevel ERROR\n", known, key)
	for path, text := range map[string]string{
		known: fmt.Sprintf("[localhost]:%s %s\n", port, gateway.Regions[0].HostKey),
		config: fmt.Sprintf("Host region\n\tHostName localhost\n\tPort %s\n\tUser dev\n\tStrictHostKeyChecking yes\n%sHost dev.coder\n\tProxyJump region\n\tStrictHostKeyChecking accept-new\n%s",
			port, common, common),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(host string) (stdout, stderr string, code int) {
		t.Helper()
		out, stderr, err := output(exec.CommandContext(t.Context(), "ssh", "-F", config, "-o", "BatchMode=yes", host, "echo $CODER_WORKSPACE_NAME; exit 7"))
		return out, stderr, status(err)
	}
	d.coder("ssh-key", "add", key+".pub")
	if out, stderr, code := run("region"); out != "" || code != 255 || !strings.Contains(stderr, "Allow it with: coder ssh-key regions KEY eu") {
		t.Errorf("a key that is not allowed at the region: %q, %q, %d", out, stderr, code)
	}
	d.coder("ssh-key", "regions", "travel", "eu")
	for _, host := range []string{"region", "dev.coder"} {
		if out, stderr, code := run(host); out != "dev\n" || code != 7 {
			t.Errorf("%s: %q, %q, %d", host, out, stderr, code)
		}
	}
}

// runRegion runs a region proxy of the slim binary at an address with another host than the server's. kill kills it; it ends with the test.
func (d *deployment) runRegion(name string, args ...string) (at string, kill func()) {
	d.t.Helper()
	r := d.newRegion(name, args...)
	return r.at, r.start()
}

// regionProxy is a region proxy that can be started again.
type regionProxy struct {
	d     *deployment
	at    string // its access URL
	token string
	args  []string
	log   string // a file in the deployment's folder
}

func (d *deployment) newRegion(name string, args ...string) *regionProxy {
	d.t.Helper()
	port := freePort()
	at := "http://localhost:" + port
	args = append([]string{"wsproxy", "server", "--primary-access-url", d.url(), "--access-url", at, "--http-address", "127.0.0.1:" + port, "--stun-address", "off"}, args...)
	return &regionProxy{d, at, strings.TrimSpace(d.coder("wsproxy", "create", name)), args, "proxy.log"}
}

// start runs the proxy. kill kills it; it ends with the test.
func (r *regionProxy) start() (kill func()) {
	t := r.d.t
	t.Helper()
	proxy := r.d.command(context.Background(), r.args...)
	proxy.Path, proxy.Args[0] = slim, slim
	proxy.Env = append(proxy.Env, "CODER_PROXY_SESSION_TOKEN="+r.token)
	log, err := os.OpenFile(filepath.Join(r.d.dir, r.log), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	proxy.Stdout, proxy.Stderr = log, log
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		signal(t, proxy.Process.Pid, syscall.SIGKILL)
		_ = proxy.Wait() // it was killed
		log.Close()
	})
	t.Cleanup(func() {
		kill()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s:\n%s", r.log, text)
		}
	})
	return kill
}

// terminalAt returns the address of an agent's terminals at a region.
func terminalAt(at string, agent uuid.UUID) string {
	return strings.Replace(at, "http", "ws", 1) + "/api/v2/workspaceagents/" + agent.String() + "/pty"
}

// openAtRegion opens a terminal at a region as a page does, with a token that it returns, too. It tries again while the region is not available.
func (d *deployment) openAtRegion(at string, agent, terminal uuid.UUID) (opened *browser, token string) {
	t := d.t
	t.Helper()
	testwait.Until(t, "a terminal at the region", func() error {
		var made sdk.TerminalTokenResponse
		req := sdk.TerminalTokenRequest{URL: terminalAt(at, agent), AgentID: agent}
		if err := call(http.MethodPost, d.url()+"/api/v2/applications/reconnecting-pty-signed-token", d.token, req, &made); err != nil {
			return err
		}
		token = made.SignedToken
		ws, err := d.dialRegion(at, agent, terminal, token)
		if fault.CodeOf(err) == fault.Forbidden {
			t.Fatalf("a new token: %v", err)
		}
		opened = &browser{t: t, ws: ws}
		return err
	})
	t.Cleanup(func() { opened.ws.CloseNow() })
	return opened, token
}

// dialRegion opens a terminal at a region with a token.
func (d *deployment) dialRegion(at string, agent, terminal uuid.UUID, token string) (*websock.Conn, error) {
	d.t.Helper()
	target, err := url.Parse(terminalAt(at, agent))
	if err != nil {
		d.t.Fatal(err)
	}
	target.RawQuery = url.Values{"reconnect": {terminal.String()}, "height": {"30"}, "width": {"90"}, sdk.TerminalTokenParam: {token}}.Encode()
	return websock.Dial(d.t.Context(), target, websock.DialOptions{ReadLimit: 1 << 20})
}
