package httpapi_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

func TestTrailingSlash(t *testing.T) {
	t.Parallel()
	mux := newMux(t, io.Discard)
	echo := func(w http.ResponseWriter, r *http.Request) error {
		return httpapi.Write(w, http.StatusOK, r.Method+" "+r.PathValue("name"))
	}
	mux.Handle("GET /api/v2/{$}", rbac.Public, echo)
	mux.Handle("POST /api/v2/things/{name}", rbac.Public, echo)
	mux.Handle("GET /api/v2/things", rbac.Public, echo)
	mux.Handle("/", rbac.Public, echo)
	for target, want := range map[string]string{
		"GET /api/v2":            `"GET "`,
		"GET /api/v2/":           `"GET "`,
		"GET /api/v2/things":     `"GET "`,
		"GET /api/v2/things/":    `"GET "`,
		"POST /api/v2/things/a/": `"POST a"`,
		"POST /api/v2/things/a":  `"POST a"`,
		// An escaped slash is part of a name.
		"POST /api/v2/things/a%2F": `"POST a/"`,
	} {
		method, path, _ := strings.Cut(target, " ")
		if w := do(mux, method, path, nil); w.Code != 200 || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: got %d %s, want %s", target, w.Code, w.Body, want)
		}
	}
	if w := do(mux, "GET", "/api/v2/others/", nil); w.Code != 404 || decode(t, w).Message == "" {
		t.Errorf("no such route: got %d %s", w.Code, w.Body)
	}
}

// TestBadText checks that text that the database cannot store never reaches a handler, and is reported as the client's fault.
func TestBadText(t *testing.T) {
	t.Parallel()
	mux := newMux(t, io.Discard)
	mux.Handle("GET /api/v2/things/{name}", rbac.Public, func(w http.ResponseWriter, r *http.Request) error {
		if text := r.PathValue("name") + r.URL.Query().Get("q"); strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return errors.New("invalid byte sequence for encoding UTF8")
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
	for path, want := range map[string]int{
		"/api/v2/things/%00": 400, "/api/v2/things/a%ff": 400, "/api/v2/things/x?q=%00": 400, "/api/v2/things/x?q=%ff": 400, "/api/v2/things/x?%00=1": 400,
		"/api/v2/things/x?q=%zz": 400, "/api/v2/things/x?q=a;b": 400,
		"/api/v2/things/%C3%A9": 204, "/api/v2/things/x?q=%C3%A9+%22b%22": 204, "/api/v2/things/..%2F..%2Fetc": 204,
	} {
		if w := do(mux, "GET", path, nil); w.Code != want {
			t.Errorf("%s: got %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
	read := func(text string) error {
		var v struct{ Name string }
		return httpapi.Read(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(text)), &v)
	}
	for text, want := range map[string]fault.Code{
		`{"name":"a\u0000"}`: fault.Invalid, `{"name":"\\\u0000"}`: fault.Invalid, "{\"name\":\"\xff\"}": fault.Invalid, `{"na\u0000me":1}`: fault.Invalid,
		`{"name":"\\u0000"}`: "", `{"name":"\u00001"}`: fault.Invalid, `{"name":"\u0001é"}`: "",
	} {
		if err := read(text); fault.CodeOf(err) != want {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// TestContentType checks that a form on another site's page cannot pass for JSON. Programs declare a form's type
// unintentionally.
func TestContentType(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		header http.Header
		want   fault.Code
	}{
		{"no type", http.Header{}, ""},
		{"curl -d", http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "User-Agent": {"curl/8"}}, ""},
		{"JSON", http.Header{"Content-Type": {"application/json; charset=utf-8"}, "Origin": {"https://mesh.example.com"}}, ""},
		{"a browser's JSON without a type", http.Header{"Origin": {"https://mesh.example.com"}}, ""},
		{"a form", http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Origin": {"https://mesh.example.com"}}, fault.Invalid},
		{"a form as text", http.Header{"Content-Type": {"Text/Plain;charset=UTF-8"}, "Sec-Fetch-Site": {"same-origin"}}, fault.Invalid},
		{"a form with files", http.Header{"Content-Type": {"multipart/form-data; boundary=x"}, "User-Agent": {"Mozilla/5.0"}}, fault.Invalid},
		{"a form with a cookie", http.Header{"Content-Type": {"text/plain"}, "Cookie": {"a=b"}}, fault.Invalid},
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader("{}"))
		r.Header = row.header
		var v struct{}
		if err := httpapi.Read(httptest.NewRecorder(), r, &v); fault.CodeOf(err) != row.want {
			t.Errorf("%s: got %v, want %q", row.name, err, row.want)
		}
	}
}

// TestCrossOriginPublic checks that a public route is guarded whatever token a request names, because anyone can name a
// token.
func TestCrossOriginPublic(t *testing.T) {
	t.Parallel()
	mux := newMux(t, io.Discard)
	mux.Handle("POST /api/v2/login", rbac.Public, func(w http.ResponseWriter, _ *http.Request) error { w.WriteHeader(201); return nil })
	for _, query := range []string{"", "?coder_session_token=x", "?coder_session_token=" + goodToken} {
		w := do(mux, "POST", "/api/v2/login"+query, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") })
		if w.Code != 403 {
			t.Errorf("another site's form with %q: got %d, want 403", query, w.Code)
		}
		w = do(mux, "POST", "/api/v2/login"+query, func(r *http.Request) { r.Header.Set("Origin", "https://mesh.example.com") })
		if w.Code != 201 {
			t.Errorf("the own page with %q: got %d, want 201", query, w.Code)
		}
		if w = do(mux, "POST", "/api/v2/login"+query, nil); w.Code != 201 {
			t.Errorf("a program with %q: got %d, want 201", query, w.Code)
		}
	}
}

func TestPlanted(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		cookies, name, value string
		want                 bool
	}{
		{"coder_session_token=a", "Sec-Fetch-Site", "none", true},
		{"coder_session_token=a", "User-Agent", "Mozilla/5.0 (X11)", true},
		{"coder_session_token=a", "Origin", "https://x", true},
		{"coder_session_token=a", "User-Agent", "Go-http-client/1.1", false},
		{"__Host-coder_session_token=a", "Sec-Fetch-Site", "none", false},
		{"__Host-coder_session_token=a; coder_session_token=b", "Sec-Fetch-Site", "none", false},
		{"other=a", "Sec-Fetch-Site", "none", false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Cookie", row.cookies)
		r.Header.Set(row.name, row.value)
		if got := httpapi.Planted(r); got != row.want {
			t.Errorf("%+v: got %t", row, got)
		}
	}
}

// dial opens a connection and sends the beginning of a request.
func dial(t *testing.T, s *httptest.Server, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// readers is a mux whose routes read bodies in each of the ways that there are, and report how that ended.
func readers(t *testing.T, timeout time.Duration) (mux *httpapi.Mux, read chan error) {
	t.Helper()
	mux, read = newMux(t, io.Discard), make(chan error, 8)
	mux.Handle("POST /read", rbac.Public, func(w http.ResponseWriter, r *http.Request) error {
		var v map[string]any
		err := httpapi.Read(w, r, &v)
		read <- err
		return err
	})
	mux.Handle("POST /upload", rbac.Public, func(w http.ResponseWriter, r *http.Request) error {
		httpapi.AllowUpload(r)
		data, err := io.ReadAll(r.Body)
		read <- err
		if f := httpapi.BodyFault(err); f != nil {
			return f
		}
		return httpapi.Write(w, http.StatusOK, len(data))
	})
	mux.Handle("POST /ignore", rbac.SignedIn, func(http.ResponseWriter, *http.Request) error { return nil })
	// This takes longer than the body may: the answer has as much time as it needs.
	mux.Handle("POST /think", rbac.Public, func(w http.ResponseWriter, r *http.Request) error {
		var v map[string]any
		if err := httpapi.Read(w, r, &v); err != nil {
			return err
		}
		select {
		case <-r.Context().Done():
			return errors.New("the request ended")
		case <-time.After(4 * timeout):
			return httpapi.Write(w, http.StatusOK, "thought")
		}
	})
	mux.Handle("GET /stream", rbac.Public, func(w http.ResponseWriter, r *http.Request) error {
		select {
		case <-r.Context().Done():
			return errors.New("the request ended")
		case <-time.After(4 * timeout):
			return httpapi.Write(w, http.StatusOK, "streamed")
		}
	})
	mux.Handle("POST /forever", rbac.Public, func(w http.ResponseWriter, r *http.Request) error {
		httpapi.UnboundBody(r)
		data, err := io.ReadAll(r.Body)
		read <- err
		return httpapi.Write(w, http.StatusOK, len(data))
	})
	return mux, read
}

// TestBodyDeadline checks that the server waits for an endless body no longer than its deadline, whether or not the handler
// reads it.
func TestBodyDeadline(t *testing.T) {
	t.Parallel()
	const timeout = 50 * time.Millisecond
	// request begins a request in synthetic time. read has how a handler's reading of its body ended.
	type request func(text string) (conn net.Conn, read <-chan error)
	for name, test := range map[string]func(*testing.T, request){
		"a body without an end": func(t *testing.T, request request) {
			for _, path := range []string{"/read", "/upload", "/ignore"} {
				began := time.Now()
				conn, read := request("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
				if _, err := io.ReadAll(conn); err != nil { // until the server closes the connection
					t.Errorf("%s: %v", path, err)
				}
				if took := time.Since(began); took > timeout+time.Second { // net/http lingers for half a second before it closes a connection
					t.Errorf("%s: the connection was open for %s", path, took)
				}
				if path == "/ignore" {
					continue
				}
				if err := <-read; err == nil {
					t.Errorf("%s: a body without an end was read", path)
				}
			}
		},
		"an answer that takes long": func(t *testing.T, request request) {
			for path, want := range map[string]string{"POST /think": `"thought"`, "GET /stream": `"streamed"`} {
				body := ""
				if strings.HasPrefix(path, "POST") {
					body = "Content-Length: 2\r\n\r\n{}"
				} else {
					body = "\r\n"
				}
				conn, _ := request(path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + body)
				answer, err := io.ReadAll(conn)
				if err != nil || !strings.Contains(string(answer), want) {
					t.Errorf("%s: got %q, %v", path, answer, err)
				}
			}
		},
		"a body that keeps arriving": func(t *testing.T, request request) {
			for _, path := range []string{"/upload", "/forever"} {
				conn, read := request("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n")
				for range 8 {
					time.Sleep(timeout / 4)
					if _, err := io.WriteString(conn, "x"); err != nil {
						t.Fatal(err)
					}
				}
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil || res.StatusCode != 200 {
					t.Errorf("%s in pieces: %+v, %v", path, res, err)
				}
				if err := <-read; err != nil {
					t.Errorf("%s in pieces: %v", path, err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mux, read := readers(t, timeout)
				server := &http.Server{Handler: httpapi.BoundBodies(mux, timeout)}
				listener := make(pipes)
				go func() { _ = server.Serve(listener) }()
				defer server.Close()
				test(t, func(text string) (net.Conn, <-chan error) {
					near, far := net.Pipe()
					t.Cleanup(func() { near.Close() })
					listener <- far
					if _, err := io.WriteString(near, text); err != nil {
						t.Fatal(err)
					}
					return near, read
				})
			})
		})
	}
}
