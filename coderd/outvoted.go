package coderd

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/replicas"
)

// voteTimeout bounds the questions to the other servers, which are asked at once.
const voteTimeout = 2 * time.Second

// outvoted reports whether this server, which cannot reach the database, is alone with that: whether any of the other
// servers that it knows has the database, or does not answer, so that it may. It blocks for 2 seconds at most.
func (s *Server) outvoted(ctx context.Context) bool {
	others := s.others.Load()
	if others == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, voteTimeout)
	defer cancel()
	away := make(chan bool, len(*others))
	for _, o := range *others {
		go func() { away <- withoutDatabase(ctx, o) }()
	}
	for range *others {
		if !<-away {
			return true
		}
	}
	return false
}

// withoutDatabase reports whether a server says that it cannot reach the database either.
func withoutDatabase(ctx context.Context, server replicas.Server) bool {
	at := server.URL.ResolveReference(&url.URL{Path: "/api/v2/users/first"}) // anyone may ask, and it takes a query
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusServiceUnavailable
}
