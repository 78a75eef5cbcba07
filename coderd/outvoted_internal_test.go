package coderd

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/replicas"
)

// TestOutvoted checks which answers of the other servers mean that this one alone has lost the database.
func TestOutvoted(t *testing.T) {
	t.Parallel()
	server := func(status int) replicas.Server {
		l := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v2/users/first" {
				t.Errorf("asked for %s", r.URL.Path)
			}
			w.WriteHeader(status)
		}))
		t.Cleanup(l.Close)
		u, err := url.Parse(l.URL)
		if err != nil {
			t.Fatal(err)
		}
		return replicas.Server{URL: u}
	}
	has, young, away := server(http.StatusOK), server(http.StatusNotFound), server(http.StatusServiceUnavailable)
	dead := replicas.Server{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}}
	for name, c := range map[string]struct {
		others []replicas.Server
		want   bool
	}{
		"alone":                              {nil, false},
		"all are without it":                 {[]replicas.Server{away, away}, false},
		"one has it":                         {[]replicas.Server{away, has}, true},
		"one has it, before the first user":  {[]replicas.Server{young}, true},
		"one does not answer, so it may":     {[]replicas.Server{away, dead}, true},
		"none answers: this server is apart": {[]replicas.Server{dead}, true},
	} {
		var s Server
		s.others.Store(&c.others)
		if got := s.outvoted(t.Context()); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if (&Server{}).outvoted(t.Context()) {
		t.Error("a server that has not looked for others is outvoted")
	}
}
