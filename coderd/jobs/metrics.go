package jobs

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/codermesh/codermesh/v2/coderd/database"
)

// metrics are one server's metrics of jobs; sums over all servers count each job and each daemon once. The names and labels that begin with
// coderd are those that dashboards for this API expect, except that no label names a workspace, an owner or a template's version: these
// series live as long as the process, and would grow with each workspace that ever existed.
type metrics struct {
	service *Service
	jobs    *prometheus.HistogramVec // provisioner, status
	builds  *prometheus.HistogramVec // status, template_name, workspace_transition
	total   *prometheus.CounterVec   // action, status, template_name
	waited  prometheus.Histogram
}

const (
	// provisionerLabel is the value of the label provisioner: all templates are Terraform's.
	provisionerLabel = "terraform"
	// countTimeout bounds the query about a job that has ended.
	countTimeout = 5 * time.Second
)

var (
	current = prometheus.NewDesc("coderd_provisionerd_jobs_current", "Jobs that run on provisioners that are connected to this server.", []string{"provisioner"}, nil)
	daemons = prometheus.NewDesc("coderd_provisionerd_num_daemons", "Provisioners that are connected to this server.", nil, nil)
)

func newMetrics(s *Service) *metrics {
	buckets := []float64{.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
	return &metrics{
		service: s,
		jobs: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "coderd_provisionerd_job_timings_seconds",
			Help: "How long jobs ran, by outcome (success, failed, canceled).", Buckets: buckets}, []string{"provisioner", "status"}),
		builds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "coderd_provisionerd_workspace_build_timings_seconds",
			Help: "How long workspace builds ran.", Buckets: buckets}, []string{"status", "template_name", "workspace_transition"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coderd_workspace_builds_total",
			Help: "Workspace builds that have ended."}, []string{"action", "status", "template_name"}),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "codermesh_job_queue_seconds",
			Help: "How long jobs that have ended had waited for a provisioner.", Buckets: []float64{.05, .1, .25, .5, 1, 5, 15, 60, 300, 900, 3600}}),
	}
}

// Collector returns this server's metrics of jobs.
func (s *Service) Collector() prometheus.Collector { return s.metrics }

// Describe names the metrics.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.kept() {
		c.Describe(out)
	}
	out <- current
	out <- daemons
}

// Collect reads the metrics.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.kept() {
		c.Collect(out)
	}
	m.service.mu.Lock()
	connected, running := len(m.service.sessions), 0
	for _, x := range m.service.sessions {
		running += len(x.leases)
	}
	m.service.mu.Unlock()
	out <- prometheus.MustNewConstMetric(current, prometheus.GaugeValue, float64(running), provisionerLabel)
	out <- prometheus.MustNewConstMetric(daemons, prometheus.GaugeValue, float64(connected))
}

func (m *metrics) kept() []prometheus.Collector {
	return []prometheus.Collector{m.jobs, m.builds, m.total, m.waited}
}

// count counts a job that this server has ended, after the transaction that ended it. A job that the database cannot describe now is not
// counted, and the log names it.
func (s *Service) count(ctx context.Context, id uuid.UUID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), countTimeout) // the caller's work is done, even if it goes away now
	defer cancel()
	job, err := s.opts.DB.GetEndedJob(ctx, id)
	if database.IsNotFound(err) {
		return // removed since, by retention
	}
	if err != nil {
		s.log.Warn("cannot count job", "job", id, "err", err)
		return
	}
	status := map[string]string{statusSucceeded: "success", statusFailed: "failed", statusCanceled: "canceled"}[job.Status]
	if job.StartedAt != nil {
		s.metrics.waited.Observe(job.StartedAt.Sub(job.CreatedAt).Seconds())
		took := job.CompletedAt.Sub(*job.StartedAt).Seconds()
		s.metrics.jobs.WithLabelValues(provisionerLabel, status).Observe(took)
		if job.Transition != "" {
			s.metrics.builds.WithLabelValues(status, job.TemplateName, job.Transition).Observe(took)
		}
	}
	if job.Transition != "" {
		s.metrics.total.WithLabelValues(job.Transition, status, job.TemplateName).Inc()
	}
}
