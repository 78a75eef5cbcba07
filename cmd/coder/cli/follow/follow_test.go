package follow_test

import (
	"context"
	"io"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/follow"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// outage is a server as those see it who wait for a job: streams of its log that end after a while, in this order.
type outage struct {
	streams []time.Duration // how long each lasts; 0: it cannot be opened
	asked   int
}

func (o *outage) logs(context.Context, int64) iter.Seq2[sdk.JobLog, error] {
	return func(yield func(sdk.JobLog, error) bool) {
		n := min(o.asked, len(o.streams)-1)
		o.asked++
		time.Sleep(o.streams[n])
		if n == len(o.streams)-1 && o.streams[n] > 0 {
			return // the job has ended
		}
		yield(sdk.JobLog{}, fault.New(fault.Unavailable, "cannot reach the server"))
	}
}

// TestOutages checks how long one who waits for a job waits for a server: ten minutes each time that it is away, even if
// the job wrote nothing between two times.
func TestOutages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		streams []time.Duration
		fails   bool
	}{
		"away twice, an hour apart": {[]time.Duration{0, time.Hour, 0, 0, time.Minute}, false},
		"away for good":             {[]time.Duration{time.Hour, 0}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := &outage{streams: c.streams}
				w := follow.Follower{Streams: &tty.Streams{Out: io.Discard, Err: io.Discard}}
				began := time.Now()
				job, err := w.Job(t.Context(), follow.Job{What: "the build", Logs: o.logs,
					Get: func(context.Context) (sdk.ProvisionerJob, error) {
						return sdk.ProvisionerJob{Status: sdk.JobSucceeded}, nil
					}})
				if c.fails {
					away := time.Since(began) - c.streams[0]
					if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "for more than 10m0s") ||
						away < 10*time.Minute || away > 11*time.Minute {
						t.Errorf("after %s: %v", away, err)
					}
				} else if err != nil || job.Status != sdk.JobSucceeded || o.asked != len(c.streams) {
					t.Errorf("after %d streams: %v, %v", o.asked, job.Status, err)
				}
			})
		})
	}
}
