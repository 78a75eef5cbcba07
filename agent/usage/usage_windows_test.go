package usage_test

import (
	"testing"

	"github.com/codermesh/codermesh/v2/agent/usage"
	"github.com/codermesh/codermesh/v2/internal/winetest"
)

func TestHost(t *testing.T) {
	t.Parallel()
	m := usage.New()
	for name, measure := range map[string]func() (usage.Amount, error){
		"memory": m.Memory, "cpu": func() (usage.Amount, error) { return m.HostCPU(t.Context()) },
		"disk": func() (usage.Amount, error) { return m.Disk(winetest.TempDir(t)) }, "volume": func() (usage.Amount, error) { return m.Volume(winetest.TempDir(t)) },
	} {
		got, err := measure()
		if err != nil || got.Total == nil || *got.Total <= 0 || got.Used < 0 || got.Used > *got.Total {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := m.Disk(`C:\no such folder`); err == nil {
		t.Errorf("disk of a missing folder: %+v", got)
	}
}
