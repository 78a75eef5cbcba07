package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"go4.org/mem"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"

	"github.com/codermesh/codermesh/v2/tailnet"
)

// The relay's engine sends a request about every client to an admission URL, with http.DefaultClient, and refuses the
// client without an answer. Our URLs have their own scheme, which http.DefaultTransport passes to this package. The
// request therefore never leaves the process: there is no listener that could be down, overloaded or guessed.
const admissionScheme = "codermesh-admission"

var admissions struct {
	register sync.Once
	err      error

	mu      sync.Mutex
	servers map[string]*Server // by URL host
}

// registerAdmission makes s answer admission requests to the returned URL.
func registerAdmission(s *Server) (url string, host string, err error) {
	admissions.register.Do(func() {
		transport, ok := http.DefaultTransport.(*http.Transport)
		if !ok {
			admissions.err = fmt.Errorf("http.DefaultTransport is a %T", http.DefaultTransport)
			return
		}
		admissions.servers = make(map[string]*Server)
		transport.RegisterProtocol(admissionScheme, roundTripper(answerAdmission))
	})
	if admissions.err != nil {
		return "", "", admissions.err
	}
	host = uuid.NewString()
	admissions.mu.Lock()
	defer admissions.mu.Unlock()
	admissions.servers[host] = s
	return admissionScheme + "://" + host, host, nil
}

func unregisterAdmission(host string) {
	admissions.mu.Lock()
	defer admissions.mu.Unlock()
	delete(admissions.servers, host)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answerAdmission(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	admissions.mu.Lock()
	s := admissions.servers[r.URL.Host]
	admissions.mu.Unlock()
	if s == nil {
		return nil, errors.New("no such relay")
	}
	var question tailcfg.DERPAdmitClientRequest
	if err := json.NewDecoder(io.LimitReader(r.Body, 4<<10)).Decode(&question); err != nil {
		return nil, fmt.Errorf("decode admission request: %w", err)
	}
	answer, err := json.Marshal(tailcfg.DERPAdmitClientResponse{
		Allow: s.awaitAdmission(r.Context(), question.NodePublic),
	})
	if err != nil {
		return nil, fmt.Errorf("encode admission response: %w", err)
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: io.NopCloser(bytes.NewReader(answer)), Request: r,
	}, nil
}

// Admit allows the node with this key to connect. Call it before the node learns of the relay: a refused node only
// retries after several seconds.
func (s *Server) Admit(k tailnet.PublicKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[nodeKey(k)] = true
	if a := s.asking[nodeKey(k)]; a != nil {
		close(a.admitted)
		delete(s.asking, nodeKey(k))
	}
}

const (
	// admissionTime is how long an unknown node waits for Admit. It may connect before its coordinator connection is
	// accepted, or that connection may lead to another server, which announces the key a moment later. The relay's
	// engine waits for five seconds.
	admissionTime = 2 * time.Second
	// maxAsking is how many connections may wait. More are refused at once, and try again.
	maxAsking = 1024
)

// asking are the connections with a key that wait for Admit. Server.mu guards waiters.
type asking struct {
	admitted chan struct{} // closed by Admit
	waiters  int
}

// awaitAdmission reports whether a key is admitted, or will be within admissionTime.
func (s *Server) awaitAdmission(ctx context.Context, k key.NodePublic) bool {
	s.mu.Lock()
	if s.keys[k] || s.closed || s.asked >= maxAsking {
		defer s.mu.Unlock()
		return s.keys[k]
	}
	a := s.asking[k]
	if a == nil {
		a = &asking{admitted: make(chan struct{})}
		s.asking[k] = a
	}
	a.waiters++
	s.asked++
	s.mu.Unlock()
	timer := time.NewTimer(admissionTime)
	defer timer.Stop()
	select {
	case <-a.admitted:
	case <-timer.C:
	case <-ctx.Done():
	case <-s.closing:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked--
	if a.waiters--; a.waiters == 0 && s.asking[k] == a {
		delete(s.asking, k)
	}
	return s.keys[k]
}

// Revoke undoes Admit and ends the connection of the node with this key. It does not wait for that, but no connection
// of the key survives: one that is being established right now ends as soon as it is established.
func (s *Server) Revoke(k tailnet.PublicKey) {
	s.mu.Lock()
	delete(s.keys, nodeKey(k))
	s.mu.Unlock()
	s.monitor.kick(nodeKey(k))
}

func (s *Server) admitted(k key.NodePublic) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[k]
}

func nodeKey(k tailnet.PublicKey) key.NodePublic { return key.NodePublicFromRaw32(mem.B(k[:])) }
