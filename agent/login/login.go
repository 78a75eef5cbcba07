// Package login lets programs of a workspace ask its agent for the owner's external credentials: one line of JSON over a
// private socket, and one back. It knows neither the server nor git; the caller of Serve provides the answers.
package login

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/codermesh/codermesh/internal/jsonline"
	"github.com/codermesh/codermesh/internal/secret"
)

// SocketEnv names the socket to the programs of a workspace.
const SocketEnv = "CODER_LOGIN_SOCKET"

const (
	maxLine = 16 << 10 // bytes
	// FindTimeout bounds finding an answer: the server may have to ask a provider, which may be slow.
	FindTimeout = 45 * time.Second
)

// Request names one thing.
type Request struct {
	URL      string `json:"url,omitempty"`      // of a repository or its host
	Provider string `json:"provider,omitempty"` // of the server's configuration
}

// Answer is what there is.
type Answer struct {
	Provider string `json:"provider,omitempty"`
	Name     string `json:"name,omitempty"` // of the provider, for people
	Page     string `json:"page,omitempty"` // where the owner links an account
	Username string `json:"username,omitempty"`
	// Token is empty when the owner has no link that works.
	Token string `json:"token,omitempty"`
	// Unknown says that no provider is for the request, and Error why there is no answer.
	Unknown bool   `json:"unknown,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Secret is the token as what does not print.
func (a Answer) Secret() secret.Token { return secret.Token(a.Token) }

// ReadRequest reads one line.
func ReadRequest(from io.Reader) (Request, error) {
	var r Request
	if err := jsonline.Read(from, maxLine, &r); err != nil {
		return Request{}, err
	}
	if (r.URL == "") == (r.Provider == "") {
		return Request{}, errors.New("read request: it names either a URL or a provider")
	}
	return r, nil
}

// Serve answers one request on a connection, which the caller closes. Find's context ends with the time, not with the connection.
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

// Ask sends a request to the socket at path and blocks for its answer, as long as the agent may take to find it.
func Ask(ctx context.Context, path string, r Request) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, FindTimeout+jsonline.Timeout)
	defer cancel()
	var answer Answer
	if err := jsonline.Ask(ctx, path, maxLine, r, &answer); err != nil {
		return Answer{}, fmt.Errorf("ask the workspace's agent: %w", err)
	}
	if answer.Error != "" {
		return Answer{}, errors.New(answer.Error)
	}
	return answer, nil
}
