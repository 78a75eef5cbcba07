package coderd

import (
	"context"
	"log/slog"
	"time"
)

const (
	// usesEvery is how often the server notes which sessions are in use on the mesh. A session lives for days, and its use is written at most
	// once an hour.
	usesEvery = 15 * time.Minute
	// usesTimeout bounds one note.
	usesTimeout = 30 * time.Second
)

// uses keep sessions alive that a connected mesh client uses: an SSH session of many days makes no API request.
type uses struct {
	log      *slog.Logger
	sessions func() []string                                // ids of the sessions of connected clients
	note     func(ctx context.Context, ids ...string) error // leaves those alone that have ended
}

// run works until ctx ends.
func (u uses) run(ctx context.Context) {
	tick := time.NewTicker(usesEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := u.once(ctx); err != nil && ctx.Err() == nil {
			u.log.Warn("use of sessions not noted, trying again", "err", err)
		}
	}
}

func (u uses) once(ctx context.Context) error {
	ids := u.sessions()
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, usesTimeout)
	defer cancel()
	return u.note(ctx, ids...)
}
