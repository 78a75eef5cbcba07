package agents

import "testing"

// FuzzProgramBatch: any message can be read, and is bounded by its length.
func FuzzProgramBatch(f *testing.F) {
	f.Add([]byte("\x0a\x10aaaaaaaaaaaaaaaa\x12\x09\x0a\x02\x08\x01\x12\x01x\x18\x03"))
	f.Add([]byte{0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		var batch programBatch
		if err := (programEncoding{}).Unmarshal(data, &batch); err == nil && len(batch.lines) > len(data)/2 {
			t.Errorf("%d lines of %d bytes", len(batch.lines), len(data))
		}
	})
}
