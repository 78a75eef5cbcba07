package coderdtest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Region is a client with the token of a region proxy, which asks what it likes.
type Region struct {
	*sdk.Client
	ID uuid.UUID
}

// Region creates a region proxy. None runs: the client plays it.
func (s *Server) Region(t testing.TB, name string) Region {
	t.Helper()
	made, err := s.As("olga").CreateWorkspaceProxy(t.Context(), sdk.CreateWorkspaceProxyRequest{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return Region{s.asRegion(made.Token), made.Proxy.ID}
}

// NoRegion returns a client with a token of the right form that no region proxy has.
func (s *Server) NoRegion() Region {
	return Region{Client: s.asRegion("cmwp_" + strings.Repeat("x", 43))}
}

func (s *Server) asRegion(token string) *sdk.Client {
	return sdk.New(s.URL, "", sdk.Options{Header: http.Header{sdk.ProxyTokenHeader: {token}}})
}

// WantCode reports an error that has another code than the wanted one, which is "" for no error. The text says what was tried.
func WantCode(t testing.TB, what string, err error, want fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != want {
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}
