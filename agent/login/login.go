// Package login lets programs of a workspace ask the agent for the owner's credentials elsewhere, and for ID tokens:
// one line of JSON over a private socket, and one back. It knows neither the server nor git; its caller finds the
// answers.
package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/codermesh/codermesh/v2/agent/internal/jsonline"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// SocketEnv names the socket to the programs of a workspace.
const SocketEnv = "CODER_LOGIN_SOCKET"

const (
	maxLine = 16 << 10 // bytes
	// FindTimeout bounds the search for an answer: the server may have to ask a slow provider.
	FindTimeout = 45 * time.Second
)

// Request names the repository, host or provider for which a program needs a login, or the audience of an ID token. One
// of its fields is set.
type Request struct {
	URL      string `json:"url,omitempty"`      // of a repository or its host
	Provider string `json:"provider,omitempty"` // of the server's configuration
	Audience string `json:"audience,omitempty"` // of an ID token
}

// Answer is the answer to a Request.
type Answer struct {
	Provider string `json:"provider,omitempty"`
	Name     string `json:"name,omitempty"` // of the provider, for people
	Page     string `json:"page,omitempty"` // where the owner links an account
	Username string `json:"username,omitempty"`
	// Token is empty if the owner has no working link.
	Token string `json:"token,omitempty"`
	// Extra has further properties of the token, a JSON object.
	Extra json.RawMessage `json:"extra,omitempty"`
	// Expires is when an ID token ends.
	Expires time.Time `json:"expires,omitzero"`
	// Unknown is set if no provider matches the request. Error is the reason if the agent found no answer. Refused says
	// that asking again does not help.
	Unknown bool   `json:"unknown,omitempty"`
	Error   string `json:"error,omitempty"`
	Refused bool   `json:"refused,omitempty"`
}

// Secret returns the token as a type that does not print.
func (a Answer) Secret() secret.Token { return secret.Token(a.Token) }

// Refusal is the reason for which the server refused what was asked for. It would refuse that again.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// valid reports whether the request names exactly one thing.
func (r Request) valid() bool {
	named := 0
	for _, name := range []string{r.URL, r.Provider, r.Audience} {
		if name != "" {
			named++
		}
	}
	return named == 1
}

// ReadRequest reads one line.
func ReadRequest(from io.Reader) (Request, error) {
	var r Request
	if err := jsonline.Read(from, maxLine, &r); err != nil {
		return Request{}, err
	}
	if !r.valid() {
		return Request{}, errors.New("read request: it names either a URL, a provider or an audience")
	}
	return r, nil
}

// Serve answers one request on a connection, which the caller closes. The context of find ends after FindTimeout, not
// with the connection.
func Serve(ctx context.Context, conn net.Conn, find func(context.Context, Request) Answer) error {
	_ = conn.SetReadDeadline(time.Now().Add(jsonline.Timeout)) // fails only once it is closed
	var answer Answer
	r, err := ReadRequest(conn)
	if err != nil {
		answer.Error = err.Error()
	} else {
		ctx, cancel := context.WithTimeout(ctx, FindTimeout)
		defer cancel()
		answer = find(ctx, r)
	}
	if err := jsonline.Write(conn, answer); err != nil {
		return fmt.Errorf("send answer: %w", err)
	}
	return nil
}

// Ask sends a request to the socket at path and blocks for the answer, as long as the agent may take to find it.
func Ask(ctx context.Context, path string, r Request) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, FindTimeout+jsonline.Timeout)
	defer cancel()
	var answer Answer
	if err := jsonline.Ask(ctx, path, maxLine, r, &answer); err != nil {
		return Answer{}, fmt.Errorf("ask the workspace's agent: %w", err)
	}
	switch {
	case answer.Refused:
		return Answer{}, Refusal(answer.Error)
	case answer.Error != "":
		return Answer{}, errors.New(answer.Error)
	}
	return answer, nil
}
