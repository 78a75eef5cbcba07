package httpapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// unaudited returns the number of requests that a mux counted as not recorded.
func unaudited(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	metrics, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metrics {
		if strings.HasSuffix(m.GetName(), "unaudited_requests_total") {
			return m.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}

// TestAuditLogIsComplete checks what the mux does about requests that no handler recorded.
func TestAuditLogIsComplete(t *testing.T) {
	t.Parallel()
	written := func(w http.ResponseWriter, r *http.Request) error {
		httpapi.TrailOf(r.Context()).Recorded()
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	forgotten := func(w http.ResponseWriter, _ *http.Request) error { return httpapi.Write(w, http.StatusOK, "done") }
	silent := func(http.ResponseWriter, *http.Request) error { return nil }
	forbidden := func(http.ResponseWriter, *http.Request) error { return fault.New(fault.Forbidden, "no") }
	missing := func(http.ResponseWriter, *http.Request) error { return fault.New(fault.NotFound, "no") }
	declared := httpapi.WithAudit(httpapi.Audit{Action: "write", Kind: "thing"})
	exempt := httpapi.WithAudit(httpapi.Audit{Exempt: "a reason"})
	const path = "/api/v2/a/{a}/things/{thing}"
	gap := func(action, kind string, status int) []httpapi.Gap {
		return []httpapi.Gap{{Action: action, Kind: kind, Target: "7", Status: status}}
	}
	for name, c := range map[string]struct {
		method  string
		handler httpapi.HandlerFunc
		opts    []httpapi.RouteOption
		gaps    []httpapi.Gap
		strict  int // the status with StrictAudit
	}{
		"recorded":                 {"PUT", written, []httpapi.RouteOption{declared}, nil, 204},
		"forgotten":                {"PUT", forgotten, []httpapi.RouteOption{declared}, gap("write", "thing", 200), 500},
		"forgotten without answer": {"POST", silent, []httpapi.RouteOption{declared}, gap("write", "thing", 200), 500},
		"undeclared":               {"DELETE", forgotten, nil, gap("delete", "ssh_key", 200), 500},
		"exempt":                   {"POST", forgotten, []httpapi.RouteOption{exempt}, nil, 200},
		"forbidden":                {"PATCH", forbidden, []httpapi.RouteOption{declared}, gap("write", "thing", 403), 403},
		"forbidden and exempt":     {"PATCH", forbidden, []httpapi.RouteOption{exempt}, nil, 403},
		"does not exist":           {"PATCH", missing, []httpapi.RouteOption{declared}, nil, 404},
		"reads":                    {"GET", forgotten, nil, nil, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, strict := range []bool{false, true} {
				var gaps []httpapi.Gap
				registry := prometheus.NewRegistry()
				mux := httpapi.NewMux(httpapi.Options{
					Logger: slog.New(slog.DiscardHandler), Metrics: registry, StrictAudit: strict,
					Authenticate: func(*http.Request) (rbac.Actor, error) { return rbac.Actor{UserID: uuid.New()}, nil },
					Record: func(_ context.Context, g httpapi.Gap) error {
						gaps = append(gaps, g)
						return errors.New("the database is gone")
					},
				})
				mux.Handle(c.method+" "+path, rbac.Needs(rbac.Update, rbac.SSHKey), c.handler, c.opts...)
				r := httptest.NewRequest(c.method, "/api/v2/a/1/things/7", nil)
				r.Header.Set("Coder-Session-Token", "x")
				w := httptest.NewRecorder()
				mux.ServeHTTP(w, r)
				if strict {
					if w.Code != c.strict {
						t.Errorf("strict: got %d, want %d", w.Code, c.strict)
					}
					continue
				}
				if diff := cmp.Diff(c.gaps, gaps); diff != "" {
					t.Errorf("recorded (-want +got):\n%s", diff)
				}
				if w.Code == http.StatusInternalServerError {
					t.Errorf("got %d: %s", w.Code, w.Body)
				}
				if n, want := unaudited(t, registry), c.strict == 500; (n == 1) != want {
					t.Errorf("counted %v defects", n)
				}
			}
		})
	}
}
