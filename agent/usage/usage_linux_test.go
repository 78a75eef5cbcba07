package usage_test

import (
	"errors"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/agent/usage"
)

func files(contents map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range contents {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

func amount(used, total float64, unit string) usage.Amount {
	return usage.Amount{Used: used, Total: &total, Unit: unit}
}

func TestContainers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files       map[string]string
		memory, cpu usage.Amount
	}{
		"version 2 in a container": {
			files: map[string]string{
				".dockerenv": "", "sys/fs/cgroup/cgroup.controllers": "cpu memory", "proc/self/cgroup": "0::/\n",
				"sys/fs/cgroup/memory.current": "300\n", "sys/fs/cgroup/memory.max": "1000\n", "sys/fs/cgroup/memory.stat": "anon 1\ninactive_file 100\n",
				"sys/fs/cgroup/cpu.stat": "usage_usec 5000000\n", "sys/fs/cgroup/cpu.max": "150000 100000\n",
			},
			memory: amount(200, 1000, "B"), cpu: amount(0, 1.5, "cores"),
		},
		"version 2 without limits, below its own path": {
			files: map[string]string{
				"proc/1/cgroup": "0::/kubepods/pod1", "sys/fs/cgroup/cgroup.controllers": "", "proc/self/cgroup": "0::/kubepods/pod1\n",
				"sys/fs/cgroup/kubepods/pod1/memory.current": "300", "sys/fs/cgroup/kubepods/pod1/memory.max": "max",
				"sys/fs/cgroup/kubepods/pod1/cpu.stat": "usage_usec 1", "sys/fs/cgroup/kubepods/pod1/cpu.max": "max 100000",
			},
			memory: usage.Amount{Used: 300, Unit: "B"}, cpu: usage.Amount{Unit: "cores"},
		},
		"version 1": {
			files: map[string]string{
				"run/.containerenv": "", "proc/self/cgroup": "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n",
				"sys/fs/cgroup/memory/memory.usage_in_bytes": "500", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
				"sys/fs/cgroup/memory/memory.stat": "total_inactive_file 600", "sys/fs/cgroup/cpuacct/cpuacct.usage": "1000",
				"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
			},
			memory: usage.Amount{Used: 0, Unit: "B"}, cpu: amount(0, 2, "cores"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := usage.Of(files(tt.files))
			if !m.InContainer() {
				t.Error("not in a container")
			}
			memory, err := m.ContainerMemory()
			if diff := cmp.Diff(tt.memory, memory); diff != "" || err != nil {
				t.Errorf("memory, %v (-want +got):\n%s", err, diff)
			}
			cpu, err := m.ContainerCPU(t.Context())
			if diff := cmp.Diff(tt.cpu, cpu); diff != "" || err != nil {
				t.Errorf("cpu, %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestHost(t *testing.T) {
	t.Parallel()
	m := usage.Of(files(map[string]string{
		"proc/meminfo": "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable: 250 kB\n", "proc/stat": "cpu  100 0 100 5000 10 0 0 0 0 0\ncpu0 1\n",
	}))
	got, err := m.HostMemory()
	if diff := cmp.Diff(amount(750*1024, 1000*1024, "B"), got); diff != "" || err != nil {
		t.Errorf("memory, %v (-want +got):\n%s", err, diff)
	}
	if _, err := m.ContainerMemory(); !errors.Is(err, usage.ErrNoContainer) {
		t.Errorf("container: %v, want none", err)
	}
	here := usage.New()
	for name, measure := range map[string]func() (usage.Amount, error){
		"cpu":    func() (usage.Amount, error) { return here.HostCPU(t.Context()) },
		"memory": here.HostMemory,
		"disk":   func() (usage.Amount, error) { return here.Disk("/") },
	} {
		got, err := measure()
		if err != nil || got.Total == nil || got.Used < 0 || got.Used > *got.Total {
			t.Errorf("%s of this machine: %+v, %v", name, got, err)
		}
	}
	if _, err := here.Disk("/does/not/exist"); err == nil {
		t.Error("disk of nothing")
	}
}

func FuzzMeter(f *testing.F) {
	f.Add("usage_usec 5", "max 100000", "300", "inactive_file 1")
	f.Fuzz(func(_ *testing.T, stat, limit, current, memory string) {
		m := usage.Of(files(map[string]string{
			".dockerenv": "", "sys/fs/cgroup/cgroup.controllers": "", "proc/self/cgroup": stat, "sys/fs/cgroup/memory.current": current,
			"sys/fs/cgroup/memory.max": limit, "sys/fs/cgroup/memory.stat": memory, "proc/meminfo": stat,
		}))
		_, _ = m.ContainerMemory() // it must not panic
		_, _ = m.HostMemory()
	})
}
