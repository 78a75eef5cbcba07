package sdk

import (
	"bufio"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"
)

const (
	// eventsSilence is how long the stream of events may be silent: the server sends something every 15 seconds.
	eventsSilence = 45 * time.Second
	// maxEventLine bounds a line of the stream, in bytes.
	maxEventLine = 64 << 10
)

// Events yields the kind of each change that the caller may see, beginning with EventReady once all later changes will
// be reported. It ends with an error when the stream does: with the code fault.Unavailable, call it again.
func (c *Client) Events(ctx context.Context) iter.Seq2[EventKind, error] {
	return func(yield func(EventKind, error) bool) {
		run, cancel := context.WithCancel(ctx)
		defer cancel()
		resp, err := c.once(run, request{method: http.MethodGet, path: "events"}, nil)
		if err != nil {
			yield("", err)
			return
		}
		defer resp.Body.Close()
		silence := time.AfterFunc(eventsSilence, cancel)
		defer silence.Stop()
		err = readEvents(resp.Body, func() { silence.Reset(eventsSilence) },
			func(kind EventKind) bool { return yield(kind, nil) })
		if err != nil {
			yield("", c.broken(ctx, err))
		}
	}
}

// readEvents reads the names of server-sent events, until a callback returns false, and returns nil then. heard is
// called for each line.
func readEvents(r io.Reader, heard func(), event func(EventKind) bool) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEventLine)
	kind := ""
	for lines.Scan() {
		heard()
		switch line := lines.Text(); {
		case line == "" && kind != "":
			if !event(EventKind(kind)) {
				return nil
			}
			kind = ""
		case strings.HasPrefix(line, "event:"):
			kind = strings.TrimSpace(strings.TrimPrefix(line, "event:"))
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the server ended the stream")
}
