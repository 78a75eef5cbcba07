package engine

import (
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/tailnet/engine/ipstack"
)

// TestKeepMeasuring: an engine that must keep measuring the network never tells magicsock that it is idle.
func TestKeepMeasuring(t *testing.T) {
	t.Parallel()
	e := &Engine{nic: ipstack.NewLink(nil, ipstack.MTU)}
	if got := e.idle(); got < time.Hour {
		t.Errorf("an engine without packets for an hour is idle for %v", got)
	}
	e.KeepMeasuring(true)
	if got := e.idle(); got != 0 {
		t.Errorf("an engine that keeps measuring is idle for %v", got)
	}
}
