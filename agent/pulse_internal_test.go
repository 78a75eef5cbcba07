package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
)

// seenMesh is a Mesh of which a pulse sees the coordinator connection and the relay.
type seenMesh struct {
	Mesh
	since, last time.Time
	latency     time.Duration
}

func (m *seenMesh) ServerLastSeen() (since, last time.Time) { return m.since, m.last }
func (m *seenMesh) RelayLatency() time.Duration             { return m.latency }

func ack(rest time.Duration) *agentpb.ServerMessage {
	return &agentpb.ServerMessage{Message: &agentpb.ServerMessage_HeartbeatAck{HeartbeatAck: &agentpb.HeartbeatAck{RestSeconds: uint32(rest.Seconds())}}}
}

// TestPulse: the agent sends heartbeats as usual unless the server grants a rest, and rests only while the coordinator connection on which the
// rest was granted shows signs of life.
func TestPulse(t *testing.T) {
	t.Parallel()
	const rest = 10 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		mesh := &seenMesh{since: time.Now().Add(-time.Hour), latency: time.Millisecond}
		p := newPulse(mesh, func() { t.Error("an answered heartbeat counts as unanswered") })
		defer p.limit.Stop()
		// beats counts the heartbeats of a time; alive is whether the coordinator connection shows signs of life meanwhile.
		beats := func(d time.Duration, alive bool, granted time.Duration) (n int) {
			for range d / pulseTick {
				time.Sleep(pulseTick)
				if alive {
					mesh.last = time.Now()
				}
				if p.next(time.Now()) != nil {
					n++
					p.received(ack(granted))
				}
			}
			return n
		}
		expect := func(what string, got, least, most int) {
			t.Helper()
			if got < least || got > most {
				t.Errorf("%s: %d heartbeats, want %d to %d", what, got, least, most)
			}
		}
		expect("a server that grants no rest, in an hour", beats(time.Hour, true, 0), 240, 240)
		expect("the rest begins", beats(time.Minute, true, rest), 1, 1)
		expect("an hour of rest", beats(time.Hour, true, rest), 5, 6)
		expect("a minute without signs of life", beats(time.Minute, false, rest), 2, 4)
		expect("signs of life again", beats(time.Minute, true, rest), 0, 1)
		mesh.since = time.Now()
		expect("a new coordinator connection", beats(time.Minute, true, rest), 1, 1)
		p.latency = 0
		expect("the relay's latency is known at last", beats(time.Minute, true, rest), 1, 1)
		expect("the rest goes on", beats(time.Minute, true, rest), 0, 0)
		p.received(&agentpb.ServerMessage{Message: &agentpb.ServerMessage_ManifestChanged{}})
		select {
		case <-p.asked:
		default:
			t.Error("a message of the server is not answered")
		}
	})
}

// TestUnansweredHeartbeat: the agent gives up 25 seconds after a heartbeat that nothing answers, and no later for sending more of them.
func TestUnansweredHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var silent time.Duration
		p := newPulse(&seenMesh{}, func() { silent = time.Since(begin) })
		for range 20 {
			p.next(time.Now())
			time.Sleep(pulseTick)
		}
		synctest.Wait()
		if silent != answerTime {
			t.Errorf("gave up after %v, want %v", silent, answerTime)
		}
	})
}
