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
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAppThroughRegion opens a port of a workspace through a region proxy of the slim binary, as its owner and as another user. When the proxy is killed, the
// server takes its place.
func TestAppThroughRegion(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	bob := d.member("bob")
	d.coder("create", "dev", "-t", "process", "-y")
	await(t, "the agent is connected", func() bool {
		_, status := d.workspace("dev").firstAgent()
		return status == "connected"
	})
	app := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { fmt.Fprintf(rw, "app %s", r.URL.RequestURI()) }))
	defer app.Close()

	address := "127.0.0.1:" + freePort()
	at := "http://" + strings.Replace(address, "127.0.0.1", "localhost", 1) // another host than the server's
	proxy := d.command(context.Background(), "wsproxy", "server", "--primary-access-url", d.url(), "--access-url", at, "--http-address", address, "--stun-address", "off")
	proxy.Path, proxy.Args[0] = slim, slim
	proxy.Env = append(proxy.Env, "CODER_PROXY_SESSION_TOKEN="+strings.TrimSpace(d.coder("wsproxy", "create", "eu")))
	log, err := os.Create(filepath.Join(d.dir, "proxy.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	proxy.Stdout, proxy.Stderr = log, log
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- proxy.Wait() }()
	kill := func() {
		signal(t, proxy.Process.Pid, syscall.SIGKILL)
		<-ended
	}
	running := true
	defer func() {
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the proxy:\n%s", text)
		}
		if running {
			kill()
		}
	}()
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
	await(t, "the region", func() bool { return regionURL() == at })

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
	running = false
	kill()
	await(t, "the server's own address", func() bool { return regionURL() == d.url() })
}
