package jobs

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestBuildSeries counts builds of more workspaces than are named: no build is lost.
func TestBuildSeries(t *testing.T) {
	t.Parallel()
	var s buildSeries
	last := buildLabels{transition: "start", status: "success", template: "docker", version: "v1", workspace: "kept", owner: "ada"}
	s.add(last)
	for i := range maxBuildSeries + 100 {
		l := last
		l.workspace = fmt.Sprint("w", i)
		s.add(l)
		s.add(last)
	}
	series := make(chan prometheus.Metric, 2*maxBuildSeries)
	s.Collect(series)
	if n := len(series); n != maxBuildSeries+1 {
		t.Errorf("%d series, want %d named ones and one without", n, maxBuildSeries)
	}
	sum := 0
	for _, c := range s.count {
		sum += c.builds
	}
	if want := 2*(maxBuildSeries+100) + 1; sum != want {
		t.Errorf("%d builds are counted, want %d", sum, want)
	}
	if c := s.count[last]; c == nil || c.builds != maxBuildSeries+101 {
		t.Errorf("the workspace that is built most: %+v", c)
	}
	if c := s.count[buildLabels{transition: "start", status: "success", template: "docker"}]; c == nil || c.builds != 101 {
		t.Errorf("builds without a name: %+v", c)
	}
}
