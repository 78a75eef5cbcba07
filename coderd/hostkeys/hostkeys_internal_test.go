package hostkeys

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// TestLabels checks that each label, and each seed, has a key of its own, however a label is divided into parts.
func TestLabels(t *testing.T) {
	t.Parallel()
	seen := map[string][]string{}
	for _, label := range [][]string{
		nil, {""}, {"", ""}, {"gateway"}, {"gateway", ""}, {"gate", "way"}, {"agent"}, {"agent", "ab", "c"}, {"agent", "a", "bc"}, {"agent", "abc"},
		{"agentabc"}, {"agent", "a\x00\x00\x00\x01b"}, {"agent", "a", "b"},
	} {
		for _, fill := range []byte{1, 2} {
			key := hex.EncodeToString(derive(bytes.Repeat([]byte{fill}, seedSize), label...))
			if other, ok := seen[key]; ok {
				t.Errorf("%q has the key of %q", label, other)
			}
			seen[key] = label
		}
	}
}
