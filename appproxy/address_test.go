package appproxy_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/appproxy"
)

func TestParseWildcard(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"*.apps.example.com": "*.apps.example.com", "https://*.Apps.example.com/": "*.apps.example.com", "*-apps.example.com:8443": "*-apps.example.com:8443",
		"*.localhost:3000": "*.localhost:3000", "apps.example.com": "", "*": "", "*.": "", "*.*.com": "", "*.a.com/path": "", "*.a.com:x": "", "*a.com": "", "": "",
		"*.a.com:": "",
	} {
		if got, err := appproxy.ParseWildcard(text); got != want || (err == nil) != (want != "") {
			t.Errorf("ParseWildcard(%q) is %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestPort(t *testing.T) {
	t.Parallel()
	for slug, want := range map[string]struct {
		port    uint16
		tls, ok bool
	}{
		"1": {1, false, true}, "8080": {8080, false, true}, "8443s": {8443, true, true}, "65535": {65535, false, true},
		"0": {}, "65536": {}, "080": {}, "00001": {}, "s": {}, "8080x": {}, "8080ss": {}, "-1": {}, "123456": {}, "code": {}, "": {},
	} {
		port, tls, ok := appproxy.Place{Slug: slug}.Port()
		if ok != want.ok || ok && (port != want.port || tls != want.tls) {
			t.Errorf("%q: port %d, TLS %t, %t; want %+v", slug, port, tls, ok, want)
		}
	}
}

func TestPortURL(t *testing.T) {
	t.Parallel()
	access := &url.URL{Scheme: "http", Host: "coder.example.com"}
	hosts := appproxy.NewHosts(access, "*.apps.example.com")
	if got, want := hosts.PortURL("Ann", "dev", "main"), "http://{{port}}--main--dev--ann.apps.example.com"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := hosts.PortURL("ann", strings.Repeat("w", 32), strings.Repeat("a", 32)); got != "" {
		t.Errorf("a name that is too long: got %q", got)
	}
	if got := appproxy.NewHosts(access, "").PortURL("ann", "dev", "main"); got != "" {
		t.Errorf("without hosts for apps: got %q", got)
	}
}

func FuzzLabel(f *testing.F) {
	f.Add("code--main--dev--ann")
	f.Add("8080s--main--my-dev--a")
	f.Add("----")
	f.Fuzz(func(t *testing.T, label string) {
		again, ok := appproxy.Relabel(label)
		if ok && again != strings.ToLower(label) {
			t.Errorf("%q is read as %q", label, again)
		}
	})
}

func FuzzPath(f *testing.F) {
	f.Add("/@ann/dev.main/apps/code/x")
	f.Add("/%40ann/dev/apps/code/~token/x%2F")
	f.Add("//@a/b/apps/c")
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		if base, ok := appproxy.PathBase(u); ok && (!strings.HasPrefix(base, "/") || strings.HasPrefix(base, "//") || strings.HasPrefix(base, `/\`)) {
			t.Errorf("%q has the base %q, which leads elsewhere", path, base)
		}
	})
}
