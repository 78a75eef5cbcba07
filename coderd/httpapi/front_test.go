package httpapi_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/clientaddr"
)

func TestRedirectPages(t *testing.T) {
	t.Parallel()
	access := &url.URL{Scheme: "https", Host: "coder.example.com"}
	served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	proxies := clientaddr.Proxies{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	handler := proxies.Handler(httpapi.RedirectPages(access, true, served))
	for _, tt := range []struct {
		method, url, peer, upgrade string
		want                       string // "" means served
	}{
		{"GET", "https://coder.example.com/templates", "192.0.2.1:9", "", ""},
		{"GET", "https://coder.example.com:443/templates", "192.0.2.1:9", "", ""},
		{"GET", "https://CODER.example.com/templates", "192.0.2.1:9", "", ""},
		{"GET", "http://coder.example.com/templates?a=1", "192.0.2.1:9", "", "https://coder.example.com/templates?a=1"},
		{"GET", "http://coder.example.com/templates", "10.0.0.7:9", "", ""}, // the proxy ends TLS
		{"GET", "https://192.0.2.7/a%20b", "192.0.2.1:9", "", "https://coder.example.com/a%20b"},
		{"GET", "https://192.0.2.7//evil.example.com/x", "192.0.2.1:9", "", "https://coder.example.com/evil.example.com/x"},
		{"HEAD", "https://192.0.2.7/", "10.0.0.7:9", "", "https://coder.example.com/"},
		{"POST", "https://192.0.2.7/", "192.0.2.1:9", "", ""},
		{"GET", "http://192.0.2.7/api/v2/buildinfo", "192.0.2.1:9", "", ""},
		{"GET", "http://192.0.2.7/bin/coder-linux-amd64", "192.0.2.1:9", "", ""},
		{"GET", "http://192.0.2.7/derp", "192.0.2.1:9", "", ""},
		{"GET", "http://192.0.2.7/healthz", "192.0.2.1:9", "", ""},
		{"GET", "http://192.0.2.7/binary", "192.0.2.1:9", "", "https://coder.example.com/binary"},
		{"GET", "http://192.0.2.7/x", "192.0.2.1:9", "websocket", ""},
	} {
		r := httptest.NewRequest(tt.method, tt.url, nil)
		r.RemoteAddr = tt.peer
		if r.TLS == nil && r.URL.Scheme == "https" {
			r.TLS = &tls.ConnectionState{}
		}
		if tt.upgrade != "" {
			r.Header.Set("Upgrade", tt.upgrade)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if got := w.Header().Get("Location"); got != tt.want || tt.want != "" && w.Code != http.StatusTemporaryRedirect {
			t.Errorf("%s %s from %s: got %d to %q, want %q", tt.method, tt.url, tt.peer, w.Code, got, tt.want)
		}
	}
}

func TestTransport(t *testing.T) {
	t.Parallel()
	access := &url.URL{Scheme: "https", Host: "coder.example.com"}
	for _, tt := range []struct {
		age     time.Duration
		options []string
		url     *url.URL
		want    string
		wrong   bool
	}{
		{0, nil, access, "", false},
		{time.Hour, nil, access, "max-age=3600", false},
		{time.Hour, []string{"preload", "includesubdomains"}, access, "max-age=3600; includeSubDomains; preload", false},
		{time.Hour, []string{"forever"}, access, "", true},
		{0, []string{"preload"}, access, "", true},
		{-time.Hour, nil, access, "", true},
		{time.Hour, nil, &url.URL{Scheme: "http", Host: "coder.example.com"}, "", true},
	} {
		transport, err := httpapi.ParseTransport(tt.age, tt.options, tt.url)
		if (err != nil) != tt.wrong {
			t.Errorf("%+v: got %v", tt, err)
		}
		w := httptest.NewRecorder()
		transport.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if got := w.Header().Get("Strict-Transport-Security"); got != tt.want {
			t.Errorf("%+v: got %q", tt, got)
		}
	}
}
