package jobs

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// maxBuildSeries bounds the workspaces' own series of ended builds.
const maxBuildSeries = 4096

var buildsTotal = prometheus.NewDesc("coderd_workspace_builds_total", "Workspace builds that have ended. Builds that ended long ago name no workspace.",
	[]string{"action", "status", "template_name", "template_version", "workspace_name", "workspace_owner", "workspace_transition"}, nil)

// buildLabels are those of one series. A build that names no workspace has only the first three.
type buildLabels struct {
	transition, status, template string
	version, workspace, owner    string
}

// buildSeries counts ended builds by workspace. Series of the workspaces that were built last are kept; others are
// added to those of their templates, so that sums never fall. The zero value is ready. Safe for concurrent use.
type buildSeries struct {
	mu    sync.Mutex
	count map[buildLabels]*buildCount // guarded by mu
	named int                         // guarded by mu: series that name a workspace
	clock int                         // guarded by mu: grows with every build
}

type buildCount struct{ builds, last int }

// add counts a build.
func (s *buildSeries) add(l buildLabels) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == nil {
		s.count = map[buildLabels]*buildCount{}
	}
	s.clock++
	if c := s.count[l]; c != nil {
		c.builds, c.last = c.builds+1, s.clock
		return
	}
	if l.workspace != "" {
		if s.named == maxBuildSeries {
			s.fold()
		}
		s.named++
	}
	s.count[l] = &buildCount{1, s.clock}
}

// fold takes the name from the series whose last build ended first. mu is locked.
func (s *buildSeries) fold() {
	var oldest buildLabels
	for l, c := range s.count {
		if l.workspace != "" && (oldest.workspace == "" || c.last < s.count[oldest].last) {
			oldest = l
		}
	}
	plain := buildLabels{transition: oldest.transition, status: oldest.status, template: oldest.template}
	if s.count[plain] == nil {
		s.count[plain] = &buildCount{}
	}
	s.count[plain].builds += s.count[oldest].builds
	delete(s.count, oldest)
	s.named--
}

// Describe names the metric.
func (*buildSeries) Describe(out chan<- *prometheus.Desc) { out <- buildsTotal }

// Collect reads the series.
func (s *buildSeries) Collect(out chan<- prometheus.Metric) {
	s.mu.Lock()
	all := make([]prometheus.Metric, 0, len(s.count))
	for l, c := range s.count {
		all = append(all, prometheus.MustNewConstMetric(buildsTotal, prometheus.CounterValue, float64(c.builds),
			l.transition, l.status, l.template, l.version, l.workspace, l.owner, l.transition))
	}
	s.mu.Unlock()
	for _, m := range all {
		out <- m
	}
}
