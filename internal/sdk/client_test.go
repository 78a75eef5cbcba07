package sdk_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

func client(t *testing.T, h http.HandlerFunc) *sdk.Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	return sdk.New(u, "abcdefghij-secret", sdk.Options{Header: http.Header{"X-Own": {"1"}}})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		body   string
		want   fault.Error
	}{
		{400, `{"message":"bad","detail":"why","validations":[{"field":"name","detail":"too long"}]}`,
			fault.Error{Code: fault.Invalid, Message: "bad", Detail: "why", Fields: []fault.Field{{Field: "name", Detail: "too long"}}}},
		{401, `{"message":"who?"}`, fault.Error{Code: fault.Unauthenticated, Message: "who?"}},
		{403, `{"message":"no"}`, fault.Error{Code: fault.Forbidden, Message: "no"}},
		{404, `{"message":"none"}`, fault.Error{Code: fault.NotFound, Message: "none"}},
		{409, `{"message":"taken"}`, fault.Error{Code: fault.Conflict, Message: "taken"}},
		{413, `{"message":"big"}`, fault.Error{Code: fault.TooLarge, Message: "big"}},
		{429, `{"message":"slow"}`, fault.Error{Code: fault.RateLimited, Message: "slow"}},
		{503, `{"message":"later"}`, fault.Error{Code: fault.Unavailable, Message: "later"}},
		{500, `{"message":"oops","detail":"id 1"}`, fault.Error{Code: fault.Internal, Message: "oops", Detail: "id 1"}},
		{500, `<html>nginx</html>`, fault.Error{Code: fault.Internal, Message: "SERVER answered 500 Internal Server Error",
			Detail: "the answer is not from codermesh; check the URL and what stands between"}},
	} {
		c := client(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.body))
		})
		_, err := c.User(t.Context(), sdk.Me)
		f := fault.As(err)
		if f == nil {
			t.Fatalf("status %d: got %v, want a fault", tt.status, err)
		}
		got := *f
		got.Message = strings.ReplaceAll(got.Message, c.URL().String(), "SERVER")
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("status %d (-want +got):\n%s", tt.status, diff)
		}
	}
}

func FuzzDecodeError(f *testing.F) {
	f.Add(404, []byte(`{"message":"none"}`))
	f.Add(502, []byte(`<html>`))
	f.Add(400, []byte(`{"message":"m","validations":[{}]}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if got := sdk.DecodeError(status, body, "http://x"); got.Message == "" || got.Code == "" {
			t.Errorf("status %d, body %q: got %+v", status, body, got)
		}
	})
}

func TestRequests(t *testing.T) {
	t.Parallel()
	var seen []string
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get(sdk.SessionHeader)+" "+r.Header.Get("X-Own"))
		w.Header().Set(sdk.VersionHeader, "v2.31.0-test")
		_, _ = w.Write([]byte(`{}`))
	})
	if _, err := c.WorkspaceByName(t.Context(), "a/b", "dev"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Workspaces(t.Context(), sdk.WorkspacesQuery{Q: "owner:me name:x", Limit: 5}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"GET /api/v2/users/a%2Fb/workspace/dev abcdefghij-secret 1",
		"GET /api/v2/workspaces?limit=5&q=owner%3Ame+name%3Ax abcdefghij-secret 1",
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if c.ServerVersion() != "v2.31.0-test" {
		t.Errorf("server version: got %q", c.ServerVersion())
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	srv.Close()
	c := sdk.New(u, secret.Token("x"), sdk.Options{})
	_, err = c.BuildInfo(t.Context())
	if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), u.Host) {
		t.Errorf("closed server: got %v, want unavailable and the host", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.BuildInfo(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: got %v", err)
	}
}

// TestWrongClock checks what a user reads whose machine's clock is outside of the validity of the server's certificate.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	for name, at := range map[string]time.Time{
		"behind": srv.Certificate().NotBefore.Add(-time.Hour), "ahead": srv.Certificate().NotAfter.Add(time.Hour),
	} {
		c := sdk.New(u, "x", sdk.Options{TLS: &tls.Config{RootCAs: roots, Time: func() time.Time { return at }}})
		_, err := c.BuildInfo(t.Context())
		f, ok := errors.AsType[*fault.Error](err)
		if !ok || f.Code != fault.Unavailable || !strings.Contains(f.Message, "this machine's clock") ||
			!strings.Contains(f.Message, at.UTC().Format(time.DateOnly)) || !strings.HasPrefix(f.Detail, "set the clock") {
			t.Errorf("a clock that is %s: got %v", name, err)
		}
	}
}

func TestNotThisAPI(t *testing.T) {
	t.Parallel()
	c := client(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>hello</html>")) })
	if _, err := c.BuildInfo(t.Context()); fault.CodeOf(err) != fault.Internal || !strings.Contains(err.Error(), "proxy") {
		t.Errorf("got %v, want an internal fault that speaks of a proxy", err)
	}
}

func TestListsAreNeverNull(t *testing.T) {
	t.Parallel()
	for _, v := range []any{
		sdk.User{}, sdk.Workspace{}, sdk.WorkspaceAgent{}, sdk.Template{}, sdk.ProvisionerJob{}, sdk.ProvisionerDaemon{}, sdk.UsersResponse{},
		sdk.WorkspacesResponse{}, sdk.TemplateVersionParameter{}, sdk.Preset{}, sdk.Entitlements{}, sdk.ListeningPorts{}, sdk.TemplateACL{},
	} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("%T: %v", v, err)
		}
		var fields map[string]any
		if err := json.Unmarshal(data, &fields); err != nil {
			t.Fatal(err)
		}
		for name, value := range fields {
			switch name {
			case "parent_id", "deleting_at", "dormant_at", "next_start_at", "latest_app_status", "current_job", "previous_job":
				continue // nullable objects
			}
			if value == nil {
				t.Errorf("%T: %s is null", v, name)
			}
		}
	}
}

func TestTransitionStatus(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		transition sdk.Transition
		job        sdk.JobStatus
		want       sdk.WorkspaceStatus
	}{
		{sdk.TransitionStart, sdk.JobPending, sdk.WorkspacePending}, {sdk.TransitionStart, sdk.JobRunning, sdk.WorkspaceStarting},
		{sdk.TransitionStart, sdk.JobSucceeded, sdk.WorkspaceRunning}, {sdk.TransitionStop, sdk.JobRunning, sdk.WorkspaceStopping},
		{sdk.TransitionStop, sdk.JobSucceeded, sdk.WorkspaceStopped}, {sdk.TransitionDelete, sdk.JobRunning, sdk.WorkspaceDeleting},
		{sdk.TransitionDelete, sdk.JobSucceeded, sdk.WorkspaceDeleted}, {sdk.TransitionStop, sdk.JobFailed, sdk.WorkspaceFailed},
		{sdk.TransitionStart, sdk.JobCanceling, sdk.WorkspaceCanceling}, {sdk.TransitionStart, sdk.JobCanceled, sdk.WorkspaceCanceled},
	} {
		if got := tt.transition.Status(tt.job); got != tt.want {
			t.Errorf("%s, job %s: got %s, want %s", tt.transition, tt.job, got, tt.want)
		}
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	build := uuid.New()
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		if got, want := r.URL.RequestURI(), "/api/v2/workspacebuilds/"+build.String()+"/logs?follow&after=4"; got != want {
			t.Errorf("request: got %s, want %s", got, want)
		}
		conn, err := websock.Accept(w, r, websock.AcceptOptions{})
		if err != nil {
			t.Error(err)
			return
		}
		for id := range int64(2) {
			if err := conn.WriteJSON(r.Context(), sdk.JobLog{ID: 5 + id, Stage: "Planning"}); err != nil {
				t.Error(err)
			}
		}
		conn.Close(websock.StatusNormal, "")
	})
	var ids []int64
	for line, err := range c.FollowBuildLogs(t.Context(), build, 4) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, line.ID)
	}
	if diff := cmp.Diff([]int64{5, 6}, ids); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
}

func TestFollowCut(t *testing.T) {
	t.Parallel()
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		conn, err := websock.Accept(w, r, websock.AcceptOptions{})
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close(websock.StatusGoingAway, "restart")
	})
	var last error
	for _, err := range c.FollowBuildLogs(t.Context(), uuid.New(), 0) {
		last = err
	}
	if fault.CodeOf(last) != fault.Unavailable {
		t.Errorf("got %v, want unavailable", last)
	}
	refused := client(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"message":"no such build"}`))
	})
	for _, err := range refused.FollowBuildLogs(t.Context(), uuid.New(), 0) {
		last = err
	}
	if fault.CodeOf(last) != fault.NotFound || !strings.Contains(last.Error(), "no such build") {
		t.Errorf("refused: got %v, want the server's words", last)
	}
}

// TestLongLists checks that lists go on after the most entries that one answer has.
func TestLongLists(t *testing.T) {
	t.Parallel()
	const all = 2005
	for name, tt := range map[string]struct {
		new  bool // a new entry comes before the others after each answer
		flat bool // the server knows no pages
		want int
	}{
		"pages": {want: all}, "others come meanwhile": {new: true, want: all}, "no pages": {flat: true, want: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ids []string
			c := client(t, func(w http.ResponseWriter, r *http.Request) {
				limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
				offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
				if offset == 0 {
					ids = nil
					for i := range all {
						ids = append(ids, strconv.Itoa(i))
					}
				} else if tt.flat {
					offset = 0
				}
				page := []map[string]string{}
				for _, id := range ids[min(offset, len(ids)):min(offset+min(limit, 1000), len(ids))] {
					page = append(page, map[string]string{"id": id})
				}
				if tt.new {
					ids = slices.Insert(ids, 0, "new "+strconv.Itoa(offset))
				}
				_ = json.NewEncoder(w).Encode(page)
			})
			check := func(what string, got []string, err error) {
				t.Helper()
				if err != nil || len(got) != tt.want {
					t.Fatalf("%s: %d entries, %v; want %d", what, len(got), err, tt.want)
				}
				for i, id := range got {
					if id != strconv.Itoa(i) {
						t.Fatalf("%s: entry %d is %s", what, i, id)
					}
				}
			}
			sessions, err := c.Sessions(t.Context(), sdk.Me)
			var got []string
			for _, s := range sessions {
				got = append(got, s.ID)
			}
			check("sessions", got, err)
			tokens, err := c.Tokens(t.Context(), sdk.Me, false, false)
			got = nil
			for _, k := range tokens {
				got = append(got, k.ID)
			}
			check("tokens", got, err)
		})
	}
}
