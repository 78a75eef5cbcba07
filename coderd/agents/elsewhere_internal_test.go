package agents

import "testing"

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
			if u.Latency < 0 {
				t.Errorf("latency %d", u.Latency)
			}
		}
	})
}
