package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/internal/backoff"
)

const (
	// callTimeout bounds one call of the server.
	callTimeout = 15 * time.Second
	// stopTimeout bounds an orderly shutdown: stop scripts, last reports and logs.
	stopTimeout  = 2 * time.Minute
	flushTimeout = 5 * time.Second
)

// uplink is how the agent calls the server over their current connection.
type uplink struct {
	mu     sync.Mutex                        // guards client
	client agentpbconnect.AgentServiceClient // nil while there is no connection
}

// now returns the client of the current connection, or an error if there is none.
func (u *uplink) now() (agentpbconnect.AgentServiceClient, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.client == nil {
		return nil, errors.New("the workspace has no connection with its server now")
	}
	return u.client, nil
}

func (u *uplink) set(client agentpbconnect.AgentServiceClient) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.client = client
}

// retry calls the server until it answers, refuses, or ctx ends.
func (u *uplink) retry(ctx context.Context, call func(context.Context, agentpbconnect.AgentServiceClient) error) error {
	pause := backoff.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Second}
	for {
		server, err := u.now()
		if err == nil {
			once, cancel := context.WithTimeout(ctx, callTimeout)
			err = call(once, server)
			cancel()
		}
		switch {
		case err == nil:
			return nil
		case connect.CodeOf(err) == connect.CodeUnimplemented:
			return errors.New("this server has no dev containers: it is older than the agent")
		case connect.CodeOf(err) == connect.CodeInvalidArgument, connect.CodeOf(err) == connect.CodePermissionDenied:
			return err
		}
		if err := pause.Wait(ctx); err != nil {
			return err
		}
	}
}
