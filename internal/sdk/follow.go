package sdk

import (
	"context"
	"errors"
	"iter"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

const (
	upgradeTimeout = 30 * time.Second
	maxLogMessage  = 4 << 20 // bytes; one line of a job, or one batch of an agent
)

// FollowBuildLogs yields the build's log lines with ids above after, and then new ones, until the build's job has
// ended. If the connection is lost it ends with the code fault.Unavailable: call it again with the last id.
func (c *Client) FollowBuildLogs(ctx context.Context, id uuid.UUID, after int64) iter.Seq2[JobLog, error] {
	return follow[JobLog](ctx, c, "workspacebuilds/"+id.String()+"/logs", after)
}

// FollowTemplateVersionLogs is FollowBuildLogs for a template's import.
func (c *Client) FollowTemplateVersionLogs(ctx context.Context, id uuid.UUID, after int64) iter.Seq2[JobLog, error] {
	return follow[JobLog](ctx, c, "templateversions/"+id.String()+"/logs", after)
}

// FollowDryRunLogs is FollowBuildLogs for a plan.
func (c *Client) FollowDryRunLogs(ctx context.Context, version, job uuid.UUID, after int64) iter.Seq2[JobLog, error] {
	return follow[JobLog](ctx, c, "templateversions/"+version.String()+"/dry-run/"+job.String()+"/logs", after)
}

// FollowAgentLogs yields batches of the agent's log lines with ids above after, and new ones as they arrive, until ctx
// ends or the agent no longer exists.
func (c *Client) FollowAgentLogs(ctx context.Context, id uuid.UUID, after int64) iter.Seq2[[]AgentLog, error] {
	return follow[[]AgentLog](ctx, c, "workspaceagents/"+id.String()+"/logs", after)
}

// follow yields one T per message of a websocket. It ends without an error when the server ends the stream.
func follow[T any](ctx context.Context, c *Client, path string, after int64) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		conn, err := c.upgrade(ctx, path+"?follow&after="+strconv.FormatInt(after, 10))
		if err != nil {
			yield(none, err)
			return
		}
		defer conn.Close(websock.StatusNormal, "")
		for {
			var message T
			if err := conn.ReadJSON(ctx, &message); err != nil {
				if closed, ok := errors.AsType[*websock.CloseError](err); ok && closed.Status == websock.StatusNormal {
					return
				}
				yield(none, c.broken(ctx, err))
				return
			}
			if !yield(message, nil) {
				return
			}
		}
	}
}

// upgrade opens a websocket below /api/v2.
func (c *Client) upgrade(ctx context.Context, path string) (*websock.Conn, error) {
	target, err := url.Parse(c.base.String() + "/api/v2/" + path)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the server URL %q cannot be used", c.base.String()).WithDetail("%v", err)
	}
	dial, cancel := context.WithTimeout(ctx, upgradeTimeout)
	defer cancel()
	conn, err := websock.Dial(dial, target, websock.DialOptions{
		Header: c.Header(), ReadLimit: maxLogMessage, HTTPClient: c.http,
	})
	if ctx.Err() != nil && err != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	c.log.Debug("api stream", "path", path[:strings.IndexByte(path, '?')])
	return conn, nil
}

// broken returns the fault for a stream that ended early.
func (c *Client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &fault.Error{
		Code:    fault.Unavailable,
		Message: "the connection to " + c.base.String() + " was lost",
		Detail:  err.Error(),
		Cause:   err,
	}
}
