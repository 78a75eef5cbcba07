package coderd_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/tailnet"
)

const (
	appPort  = 8081
	appHosts = "*.apps.example.com"
)

// serveApp is an app in the workspace: a page, and a stream that does not end.
func serveApp(t *testing.T, node *tailnet.Node) {
	t.Helper()
	l, err := node.Listen(appPort)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the app") })
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "begins")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	server := &http.Server{Handler: mux}
	served := make(chan struct{})
	go func() { defer close(served); server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-served })
}

// visitor is a browser at an app's host, or a program that shows its session there.
type visitor struct {
	client *http.Client
	base   string // of the app
	header http.Header
}

// openApps opens an app with the session: as a browser, which gets a session of its own for the app's host, and as a program.
func (o *opened) openApps(t *testing.T, s *coderdtest.Server, p *person) {
	t.Helper()
	base := "http://" + strings.Replace(appHosts, "*", "code--main--dev--"+p.name, 1)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	jar.SetCookies(s.URL, []*http.Cookie{{Name: "coder_session_token", Value: o.session, Path: "/"}})
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.URL.Host)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	o.apps = map[string]*visitor{
		"app in a browser": {&http.Client{Transport: transport, Jar: jar}, base, nil},
		"app by a program": {&http.Client{Transport: transport}, base, http.Header{sdk.SessionHeader: {o.session}}},
	}
	for kind, v := range o.apps {
		if !v.reaches(t) {
			t.Fatalf("%s is not reached", kind)
		}
		resp := v.get(t, "/stream", "same-origin")
		first := bufio.NewReader(resp.Body)
		if line, err := first.ReadString('\n'); err != nil || line != "begins\n" {
			t.Fatalf("%s: %q %v %s", kind, line, err, resp.Status)
		}
		o.until(t, kind, func() { io.Copy(io.Discard, first) }, func() { resp.Body.Close() })
	}
}

func (v *visitor) get(t *testing.T, path, site string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), "GET", v.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Sec-Fetch-Site": {site}}
	if site == "none" {
		req.Header.Set("Sec-Fetch-Mode", "navigate")
		req.Header.Set("Sec-Fetch-Dest", "document")
	}
	for name, values := range v.header {
		req.Header[name] = values
	}
	resp, err := v.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// reaches opens the app's page in a new request, by way of the sign-in where the app's host asks for that.
func (v *visitor) reaches(t *testing.T) bool {
	t.Helper()
	resp := v.get(t, "/", "none")
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body) == "the app"
}
