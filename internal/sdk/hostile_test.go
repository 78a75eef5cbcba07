package sdk_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestRedirects: neither the session nor a password follows a redirect to another server.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var stolen []string
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		stolen = append(stolen, r.Header.Get(sdk.SessionHeader)+r.Header.Get("X-Own")+string(body))
		io.WriteString(w, `{}`)
	}))
	t.Cleanup(thief.Close)
	for name, to := range map[string]string{
		"another port": thief.URL, "another host": strings.Replace(thief.URL, "127.0.0.1", "localhost", 1), "another program": "file:///etc/passwd",
	} {
		for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect} {
			c := client(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to+r.URL.Path, status) })
			_, read := c.User(t.Context(), sdk.Me)
			_, signIn := c.Login(t.Context(), sdk.LoginRequest{Email: "ada@example.com", Password: "secret"})
			_, upload := c.Upload(t.Context(), sdk.ContentTypeTar, strings.NewReader("archive"))
			download := c.Download(t.Context(), uuid.New(), "", io.Discard)
			var follow error
			for _, err := range c.FollowBuildLogs(t.Context(), uuid.New(), 0) {
				follow = err
			}
			for what, err := range map[string]error{"a request": read, "a sign-in": signIn, "an upload": upload, "a download": download, "a stream": follow} {
				if f := fault.As(err); f == nil || !strings.Contains(f.Error(), to) {
					t.Errorf("%s, %d: %s: got %v, want a refusal that names %s", name, status, what, err, to)
				}
			}
		}
	}
	if len(stolen) > 0 {
		t.Errorf("another server got %q", stolen)
	}
}

// TestRedirectToTLS: a server may redirect to itself, also from HTTP to HTTPS, and not back.
func TestRedirectToTLS(t *testing.T) {
	t.Parallel()
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"username":"`+r.Header.Get(sdk.SessionHeader)+`"}`)
	})
	secure := httptest.NewTLSServer(answer)
	t.Cleanup(secure.Close)
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, secure.URL+r.URL.Path, http.StatusMovedPermanently)
	}))
	t.Cleanup(plain.Close)
	back := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL+r.URL.Path, http.StatusMovedPermanently)
	}))
	t.Cleanup(back.Close)
	for from, ok := range map[*httptest.Server]bool{plain: true, back: false} {
		u, err := url.Parse(from.URL)
		if err != nil {
			t.Fatal(err)
		}
		c := sdk.New(u, "token", sdk.Options{TLS: secure.Client().Transport.(*http.Transport).TLSClientConfig})
		if user, err := c.User(t.Context(), sdk.Me); (err == nil && user.Username == "token") != ok {
			t.Errorf("%s: got %v, %v", from.URL, user.Username, err)
		}
	}
}

// TestEndlessAnswer: an answer that does not end is not kept.
func TestEndlessAnswer(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusBadRequest} {
		c := client(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, `{"message":"`)
			for filler := bytes.Repeat([]byte("x"), 1<<20); ; {
				if _, err := w.Write(filler); err != nil {
					return
				}
			}
		})
		if _, err := c.User(t.Context(), sdk.Me); fault.As(err) == nil {
			t.Errorf("%d: got %v", status, err)
		}
	}
}
