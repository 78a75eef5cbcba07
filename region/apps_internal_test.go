package region

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/visa"
)

// TestVisitsWithoutServers checks how long a visit goes on while no server answers: until its visa expires, and to the
// next question after that. One that the servers refuse ends at once.
func TestVisitsWithoutServers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		servers func(asked int) (VisitResponse, error)
		lasts   time.Duration
		code    fault.Code
	}{
		"no server answers": {
			func(int) (VisitResponse, error) { return VisitResponse{}, fault.New(fault.Unavailable, "away") },
			visa.Lifetime + renewEvery, fault.Unavailable,
		},
		"they answer again and refuse it": {
			func(asked int) (VisitResponse, error) {
				if asked < 6 {
					return VisitResponse{}, fault.New(fault.Unavailable, "away")
				}
				return VisitResponse{}, nil
			},
			6 * renewEvery, fault.Forbidden,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				a := &apps{log: slog.New(slog.DiscardHandler), life: t.Context(), visits: map[uuid.UUID]*visit{}}
				a.renews = func(context.Context, VisitRequest) (VisitResponse, error) {
					asked++
					return tt.servers(asked)
				}
				agent := uuid.New()
				a.begin("app", question{}, agent, VisitResponse{ID: uuid.New()}) // keeps the agent from being forgotten
				v := a.begin("terminal", question{}, agent, VisitResponse{ID: uuid.New(), Visa: "a visa"})
				v.requests, v.renew = 1, func() VisitRequest { return VisitRequest{} }
				began := time.Now()
				a.keep(v)
				if lasted := time.Since(began); lasted != tt.lasts {
					t.Errorf("it lasts %s, and asked %d times, want %s", lasted, asked, tt.lasts)
				}
				if err := context.Cause(v.ctx); fault.CodeOf(err) != tt.code {
					t.Errorf("it ended with %v, want %s", err, tt.code)
				}
			})
		})
	}
}
