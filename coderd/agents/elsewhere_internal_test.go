package agents

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
)

// FuzzDecodeUsage: what another server announces is decoded within limits, or refused.
func FuzzDecodeUsage(f *testing.F) {
	f.Add(`{"s":"5c6a32ac-21b8-4ae4-bd20-0e9b7d0f4a11","u":[{"a":"5c6a32ac-21b8-4ae4-bd20-0e9b7d0f4a11","l":-5,"k":true,"c":[1,2,3,4,5]}]}`)
	f.Add(`{"q":true}`)
	f.Add("")
	f.Fuzz(func(t *testing.T, payload string) {
		m, err := decodeUsage(payload)
		if len(m.Agents) > maxUsage {
			t.Errorf("%d agents, %v", len(m.Agents), err)
		}
		for _, u := range m.Agents {
			if u.Latency < 0 || u.Rx > maxBytes || u.Tx > maxBytes {
				t.Errorf("out of limits: %+v", u)
			}
		}
	})
}

// TestLongestUsage: agents that report the largest numbers, as hostile ones may, do not make a notification too long for
// PostgreSQL, nor sums of bytes that overflow.
func TestLongestUsage(t *testing.T) {
	t.Parallel()
	const most = math.MaxUint32
	c := &connection{agent: uuid.Max}
	c.latency.Store(math.MaxInt64)
	c.stats.Store(&agentpb.StatsRequest{
		Ssh: most, Vscode: most, Jetbrains: most, ReconnectingPty: most, PortForward: most,
		RxBytes: math.MaxUint64, TxBytes: math.MaxUint64,
	})
	u := c.usage()
	if u.Rx != maxBytes || u.Tx != maxBytes {
		t.Errorf("got %d and %d bytes, want at most %d", u.Rx, u.Tx, uint64(maxBytes))
	}
	text, err := json.Marshal(usageMessage{Server: uuid.Max, Agents: slices.Repeat([]usage{u}, usageBatch)})
	if err != nil || len(text) >= 8000 {
		t.Errorf("a notification has %d bytes (%v), want less than 8000", len(text), err)
	}
	forged := `{"u":[{"a":"` + uuid.Max.String() + `","k":true,"r":18446744073709551615,"t":18446744073709551615}]}`
	if m, err := decodeUsage(forged); err != nil || m.Agents[0].Rx != maxBytes || m.Agents[0].Tx != maxBytes {
		t.Errorf("of another server: %+v, %v", m, err)
	}
}
