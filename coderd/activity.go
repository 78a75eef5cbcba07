package coderd

import (
	"context"
	"log/slog"
	"time"
)

const (
	// activityEvery is how often the server notes which sessions are in use on the mesh, with one statement for all of
	// them, so that the time when a connected user was last seen is right within a minute.
	activityEvery = time.Minute
	// activityTimeout bounds one note.
	activityTimeout = 30 * time.Second
)

// activity keeps sessions alive that a connected mesh client uses: an SSH session of many days makes no API request.
type activity struct {
	log      *slog.Logger
	sessions func() []string                                // ids of the sessions of connected clients
	note     func(ctx context.Context, ids ...string) error // leaves those alone that have ended
}

// run works until ctx ends.
func (a activity) run(ctx context.Context) {
	tick := time.NewTicker(activityEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := a.once(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("cannot record use of sessions, trying again", "err", err)
		}
	}
}

func (a activity) once(ctx context.Context) error {
	ids := a.sessions()
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, activityTimeout)
	defer cancel()
	return a.note(ctx, ids...)
}
