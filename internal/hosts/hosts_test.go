package hosts_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/hosts"
)

func TestHas(t *testing.T) {
	t.Parallel()
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	h := hosts.New(hosts.Options{
		URLs: []*url.URL{nil, {Scheme: "https", Host: "Coder.example.com:8443"}, {Scheme: "http", Host: "replica-1:3000"}}, Wildcard: "*-apps.example.com:8443",
		Trusted: []string{"coder.internal", "*.corp.example"}, Certified: func(name string) bool { return name == "certified.example" },
	})
	for _, host := range []string{
		"", "coder.example.com", "CODER.EXAMPLE.COM.:1", "replica-1:3000", "x--y-apps.example.com", "localhost:3000", "app.localhost:3000", machine, machine + ".local:80",
		"coder.internal", "a.b.corp.example:3000", "certified.example", "127.0.0.1:3000", "10.1.2.3", "[::1]:3000", "[fe80::1%eth0]:3000", "::1",
		"host.docker.internal:3000", "host.containers.internal",
	} {
		if !h.Has(host) {
			t.Errorf("host %q is refused", host)
		}
	}
	for _, host := range []string{
		"evil.example:3000", "evil.example", "coder.example.com.evil.example", "evilcoder.example.com", "-apps.example.com", ".localhost", "localhost.evil.example", "corp.example",
		"127.0.0.1.evil.example", "127.0.0.1@evil.example", "evil.example@127.0.0.1", "evil.example:3000:3000", " ", "..", "*", "0x7f000001", "evil.example/127.0.0.1",
		"[evil.example]:80", "xn--lcalhost-5hb", "docker.internal", "evil.host.docker.internal", "host.docker.internal.evil.example",
	} {
		if h.Has(host) {
			t.Errorf("host %q is accepted", host)
		}
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	served := 0
	front := hosts.New(hosts.Options{Setting: "--trusted-hosts"}).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	for host, want := range map[string]int{"evil.example:3000": http.StatusMisdirectedRequest, "127.0.0.1:3000": http.StatusOK} {
		r := httptest.NewRequest(http.MethodGet, "/healthz", nil)
		r.Host = host
		w := httptest.NewRecorder()
		front.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: got %d %s, want %d", host, w.Code, w.Body, want)
		}
	}
	if served != 1 {
		t.Errorf("the server answered %d requests, want 1", served)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	if got, err := hosts.Parse("--trusted-hosts", []string{"coder.internal", "*.corp.example", "my_host"}); err != nil || len(got) != 3 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "*", "*.", "http://coder.internal", "coder.internal:3000", "*coder", "a b", ".internal", "*..internal"} {
		if _, err := hosts.Parse("--trusted-hosts", []string{bad}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
