package account

import (
	"encoding/json"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// FuzzSyncSettings: settings on standard input are one JSON value without unknown fields, or are refused.
func FuzzSyncSettings(f *testing.F) {
	f.Add([]byte(`{"field":"groups","mapping":{"a":["4ad86302-94fd-4c69-b6ed-8bd8e3ba4b53"]},"regex_filter":null}`))
	f.Add([]byte(`{"field":"x"} {}`))
	f.Add([]byte(`{"unknown":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		groups, err := parseSync[sdk.GroupSyncSettings](data)
		if err == nil && !json.Valid(data) {
			t.Errorf("%q was read as %+v", data, groups)
		}
		if _, err := parseSync[sdk.RoleSyncSettings](data); err == nil && !json.Valid(data) {
			t.Errorf("%q was read as settings of roles", data)
		}
	})
}
