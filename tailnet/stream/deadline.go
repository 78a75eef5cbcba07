package stream

import (
	"sync"
	"time"
)

// deadline is when reads or writes time out. The lock of wake guards it.
type deadline struct {
	at    time.Time
	timer *time.Timer
	wake  *sync.Cond
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) set(t time.Time) {
	d.at = t
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if !t.IsZero() {
		d.timer = time.AfterFunc(time.Until(t), func() {
			d.wake.L.Lock()
			defer d.wake.L.Unlock()
			d.wake.Broadcast()
		})
	}
	d.wake.Broadcast()
}

// stop stops the timer. It is called when no reader or writer waits any longer.
func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}
