package audit

import (
	"context"
	"time"
)

// SetClock makes the recorder tell the minutes of refusals by a test's clock. Call it before Refused and Run.
func (c *Connections) SetClock(now func() time.Time) { c.now = now }

// StoreRefusals stores what is due, as Run does.
func (c *Connections) StoreRefusals(ctx context.Context) error { return c.storeRefusals(ctx, false) }
