package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// desktop is a machine with a browser: what the command line opens arrives in a pipe. The tests that use it change the environment.
func desktop(t *testing.T) (opened func() *url.URL) {
	t.Helper()
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		t.Skip("replaces the desktop's program for addresses, which only Unix finds on PATH")
	}
	bin := t.TempDir()
	pipe := filepath.Join(bin, "opened")
	script := "#!/bin/sh\nprintf '%s\\n' \"$1\" >" + pipe + ".new && mv " + pipe + ".new " + pipe + "\n"
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("DISPLAY", ":0")
	return func() *url.URL {
		for {
			if text, err := os.ReadFile(pipe); err == nil {
				page, err := url.Parse(strings.TrimSpace(string(text)))
				if err != nil {
					t.Fatal(err)
				}
				return page
			}
			if t.Context().Err() != nil {
				t.Fatal("the command line opened no page")
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// typing runs the program on a terminal, on which the test types later.
func typing(t *testing.T, args ...string) (dir string, typed io.Writer, ended <-chan error) {
	t.Helper()
	dir = t.TempDir()
	in, typed := io.Pipe()
	t.Cleanup(func() { in.Close() })
	g := global.New(&tty.Streams{In: in, Out: io.Discard, Err: tty.Cleaning(new(bytes.Buffer)), InTTY: true})
	program := root(g, nil)
	program.SetArgs(append([]string{"--global-config", dir}, args...))
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	go func() { done <- program.ExecuteContext(ctx) }()
	return dir, typed, done
}

const handedOver = "bbbbbbbbbb-0123456789012345678901"

// loginServer accepts the code "good" of the given challenge.
func loginServer(t *testing.T, challenge *atomic.Value) *api {
	t.Helper()
	return newAPI(t, map[string]any{
		"GET users/first": struct{}{}, "GET users/me": sdk.User{Username: "ada"},
		"POST users/login/code": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var req sdk.LoginWithCodeRequest
			_ = json.NewDecoder(r.Body).Decode(&req)
			sum := sha256.Sum256([]byte(req.CodeVerifier))
			if req.Code != "good" || base64.RawURLEncoding.EncodeToString(sum[:]) != challenge.Load() || len(req.CodeVerifier) < 43 {
				w.WriteHeader(http.StatusUnauthorized)
				_ = json.NewEncoder(w).Encode(sdk.Response{Message: "The code is not valid."})
				return
			}
			_ = json.NewEncoder(w).Encode(sdk.LoginResponse{SessionToken: handedOver})
		}),
	})
}

// visit sends a browser to the command line and returns where it is sent next.
func visit(t *testing.T, page *url.URL, method, path string, query url.Values) (status int, next string) {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:"+page.Query().Get("port")+path+"?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Location")
}

// TestLoginFromBrowser: a browser on this machine signs the terminal in without a token to paste. Others on this machine do not.
func TestLoginFromBrowser(t *testing.T) {
	opened := desktop(t)
	var challenge atomic.Value
	srv := loginServer(t, &challenge)
	dir, _, ended := typing(t, "login", srv.url)
	page := opened()
	state, hash := page.Query().Get("state"), page.Query().Get("code_challenge")
	challenge.Store(hash)
	if page.Path != "/cli-auth" || len(state) != 43 || len(hash) != 43 || state == hash {
		t.Fatalf("opened %s", page)
	}
	for name, bad := range map[string]struct {
		method, path string
		query        url.Values
	}{
		"no state":      {"GET", "/", url.Values{"code": {"good"}}},
		"another state": {"GET", "/", url.Values{"code": {"good"}, "state": {hash}}},
		"no code":       {"GET", "/", url.Values{"state": {state}}},
		"a form":        {"POST", "/", url.Values{"code": {"good"}, "state": {state}}},
		"another path":  {"GET", "/x", url.Values{"code": {"good"}, "state": {state}}},
	} {
		if status, _ := visit(t, page, bad.method, bad.path, bad.query); status != http.StatusBadRequest {
			t.Errorf("%s: got %d", name, status)
		}
	}
	if status, next := visit(t, page, "GET", "/", url.Values{"code": {"good"}, "state": {state}}); status != http.StatusSeeOther || next != srv.url+"/cli-auth?done=true" {
		t.Errorf("the browser gets %d, and goes to %q", status, next)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, config.FileSession)); err != nil || string(data) != handedOver {
		t.Errorf("session %q, %v", data, err)
	}
}

// A code that the server refuses ends the command with the server's reason.
func TestLoginFromBrowserRefused(t *testing.T) {
	opened := desktop(t)
	var challenge atomic.Value
	srv := loginServer(t, &challenge)
	dir, _, ended := typing(t, "login", srv.url)
	page := opened()
	visit(t, page, "GET", "/", url.Values{"code": {"good"}, "state": {page.Query().Get("state")}}) // of another challenge
	if err := <-ended; fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, config.FileSession)); err == nil {
		t.Error("a session is stored")
	}
}

// The browser may be on another machine: the token that the page shows is pasted, as before.
func TestLoginPastes(t *testing.T) {
	opened := desktop(t)
	var challenge atomic.Value
	srv := loginServer(t, &challenge)
	dir, typed, ended := typing(t, "login", srv.url)
	page := opened()
	if _, err := io.WriteString(typed, "aaaaaaaaaa-0123456789012345678901\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, config.FileSession)); err != nil || string(data) != "aaaaaaaaaa-0123456789012345678901" {
		t.Errorf("session %q, %v", data, err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+page.Query().Get("port"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Error("the command line still listens")
	}
}
