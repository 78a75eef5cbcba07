package agent

import (
	"context"
	"io"

	"github.com/codermesh/codermesh/v2/agent/archive"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// archiveOpener returns what opens archives of the server for programs of the workspace, with the agent's token, which
// they do not get.
func archiveOpener(opts Options) func(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	if opts.URL == nil {
		return func(context.Context, string) (io.ReadCloser, int64, error) {
			return nil, 0, archive.Refusal("this agent does not know its server's address")
		}
	}
	client := sdk.New(opts.URL, opts.Token, sdk.Options{Header: opts.Header, TLS: opts.TLS, Logger: opts.Logger})
	return func(ctx context.Context, name string) (io.ReadCloser, int64, error) {
		content, size, err := client.AgentArchive(ctx, name)
		f := fault.As(err)
		if f == nil {
			return content, size, err
		}
		switch f.Code {
		case fault.Unavailable, fault.RateLimited, fault.Internal:
			return nil, 0, f
		}
		text := f.Error()
		if f.Detail != "" {
			text += " " + f.Detail
		}
		return nil, 0, archive.Refusal(text)
	}
}
