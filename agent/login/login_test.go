package login_test

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/agent/login"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers on a socket, one connection after the other.
func serve(t *testing.T, find func(context.Context, login.Request) login.Answer) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = login.Serve(context.Background(), conn, find)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return path
}

func TestAsk(t *testing.T) {
	t.Parallel()
	path := serve(t, func(_ context.Context, r login.Request) login.Answer {
		switch r {
		case login.Request{URL: "https://x"}:
			return login.Answer{Provider: "x", Token: "secret", Username: "oauth2"}
		case login.Request{Provider: "y"}:
			return login.Answer{Error: "no time"}
		}
		return login.Answer{Unknown: true}
	})
	got, err := login.Ask(t.Context(), path, login.Request{URL: "https://x"})
	if err != nil || got.Token != "secret" || got.Username != "oauth2" || strings.Contains(got.Secret().String(), "secret") {
		t.Errorf("got %v, %v", got.Secret(), err)
	}
	if _, err := login.Ask(t.Context(), path, login.Request{Provider: "y"}); err == nil || err.Error() != "no time" {
		t.Errorf("got %v", err)
	}
	if got, err := login.Ask(t.Context(), path, login.Request{Provider: "z"}); err != nil || !got.Unknown {
		t.Errorf("got %v, %v", got.Unknown, err)
	}
	if _, err := login.Ask(t.Context(), path, login.Request{}); err == nil {
		t.Error("a request for nothing is answered")
	}
	if _, err := login.Ask(t.Context(), path+"x", login.Request{Provider: "z"}); err == nil {
		t.Error("nobody answers, and there is an answer")
	}
}

func FuzzReadRequest(f *testing.F) {
	f.Add([]byte("{\"url\":\"https://x\"}\n"))
	f.Add([]byte("{\"provider\":\"x\"}\n"))
	f.Add([]byte("{\"audience\":\"x\"}\n"))
	f.Add([]byte("{}\n"))
	f.Add(bytes.Repeat([]byte("a"), 20<<10))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := login.ReadRequest(bytes.NewReader(data))
		if err == nil && r != (login.Request{URL: r.URL}) && r != (login.Request{Provider: r.Provider}) && r != (login.Request{Audience: r.Audience}) {
			t.Errorf("%q gives %+v", data, r)
		}
	})
}
