package webhook_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/webhook"
)

// TestSignature compares with the example of the specification.
func TestSignature(t *testing.T) {
	t.Parallel()
	at := time.Unix(1614265330, 0)
	got, err := webhook.Signature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", at, []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	for _, damaged := range []string{"", "whsec_", "whsec_%"} {
		if got, err := webhook.Signature(damaged, "id", at, nil); err == nil {
			t.Errorf("secret %q signs: %s", damaged, got)
		}
	}
	if a, b := webhook.NewSecret(), webhook.NewSecret(); a == b || !strings.HasPrefix(a, "whsec_") {
		t.Errorf("secrets %q and %q", a, b)
	}
}

// TestGuard checks addresses by which a webhook would reach the server's own host or its cloud, in every spelling.
func TestGuard(t *testing.T) {
	t.Parallel()
	guard := webhook.NewGuard(nil)
	for _, text := range []string{
		"127.0.0.1", "127.8.9.10", "0.0.0.0", "0.1.2.3", "::", "::1", "::ffff:127.0.0.1", "::127.0.0.1", "169.254.169.254", "::ffff:169.254.169.254",
		"fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "224.0.0.1", "ff02::1", "255.255.255.255",
		"64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a9fe:a9fe::1", "fec0::1",
	} {
		if !guard.Refuses(netip.MustParseAddr(text)) {
			t.Errorf("%s is let pass", text)
		}
	}
	for _, text := range []string{"10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "192.0.2.1", "2001:db8::1", "fd12::1", "64:ff9b::c000:201"} {
		if guard.Refuses(netip.MustParseAddr(text)) {
			t.Errorf("%s is refused", text)
		}
	}
	if !guard.Refuses(netip.Addr{}) {
		t.Error("no address is let pass")
	}
	for _, host := range []string{"localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "::1", "169.254.169.254"} {
		if guard.CheckHost(host) == nil {
			t.Errorf("%s is let pass", host)
		}
	}
	allowed := webhook.NewGuard([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	if allowed.Refuses(netip.MustParseAddr("127.0.0.1")) || allowed.Refuses(netip.MustParseAddr("::ffff:127.0.0.1")) || !allowed.Refuses(netip.MustParseAddr("::1")) {
		t.Error("an allowed network is not what was allowed")
	}
}

// TestPost checks that a post neither follows redirects nor reaches a refused address, also by a name that has one, and that errors do not have
// the URL.
func TestPost(t *testing.T) {
	t.Parallel()
	reached := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached <- r.Method + " " + r.URL.Path + " " + r.Header.Get("X-Test")
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/secret", http.StatusTemporaryRedirect)
			return
		}
		_, _ = w.Write([]byte(strings.Repeat("x", 5000)))
	}))
	t.Cleanup(receiver.Close)
	open, guarded := webhook.NewClient(nil), webhook.NewClient(webhook.NewGuard(nil))
	t.Cleanup(open.Close)
	t.Cleanup(guarded.Close)
	header := http.Header{"X-Test": {"yes"}}
	answer, err := open.Post(t.Context(), receiver.URL+"/ok", header, []byte("{}"))
	if err != nil || !answer.Accepted() || len(answer.Excerpt) != 4096 {
		t.Errorf("got %d, %d bytes, %v", answer.Status, len(answer.Excerpt), err)
	}
	answer, err = open.Post(t.Context(), receiver.URL+"/moved", header, []byte("{}"))
	if err != nil || answer.Status != http.StatusTemporaryRedirect || answer.Accepted() {
		t.Errorf("a redirect: %d, %v", answer.Status, err)
	}
	if got := []string{<-reached, <-reached}; got[0] != "POST /ok yes" || got[1] != "POST /moved yes" {
		t.Errorf("got %q", got)
	}
	u, err := url.Parse(receiver.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]"} {
		_, err := guarded.Post(t.Context(), "http://"+host+":"+u.Port()+"/secret", nil, nil)
		if err == nil || strings.Contains(err.Error(), "/secret") {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, err := guarded.Post(t.Context(), receiver.URL, nil, nil); !errors.Is(err, webhook.ErrForbidden) {
		t.Errorf("got %v, want that it is forbidden", err)
	}
	if len(reached) > 0 {
		t.Errorf("reached %q", <-reached)
	}
	if _, err := open.Post(t.Context(), "http://\x00/secret", nil, nil); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("an unparsable URL: %v", err)
	}
}

// FuzzGuard checks that every spelling of an address of this host is refused.
func FuzzGuard(f *testing.F) {
	f.Add("127.0.0.1")
	f.Add("::ffff:7f00:1")
	guard := webhook.NewGuard(nil)
	f.Fuzz(func(t *testing.T, host string) {
		addr, err := netip.ParseAddr(host)
		if err == nil && (addr.Unmap().IsLoopback() || addr.Unmap().IsLinkLocalUnicast()) && guard.CheckHost(host) == nil {
			t.Errorf("%q is let pass", host)
		}
	})
}
