package jobs

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/codermesh/codermesh/v2/coderd/database"
)

// metrics are one server's metrics of jobs; sums over all servers count each job and each daemon once. The names and
// labels that begin with coderd are those that dashboards for this API expect. Those of builds name workspaces, owners
// and versions for a bounded number of workspaces only (buildSeries): they would grow with each workspace that ever
// existed.
type metrics struct {
	service *Service
	jobs    *prometheus.HistogramVec // provisioner, status
	builds  *prometheus.HistogramVec // status, template_name, workspace_transition
	total   buildSeries
	waited  prometheus.Histogram
	created *prometheus.CounterVec   // of workspaces that were no prebuilt ones: organization_name, preset_name, template_name
	took    *prometheus.HistogramVec // the same and type: how long workspaces were created
	claimed *prometheus.HistogramVec // organization_name, preset_name, template_name
}

const (
	// provisionerLabel is the value of the label provisioner: all templates are Terraform's.
	provisionerLabel = "terraform"
	// countTimeout bounds the query about a job that has ended.
	countTimeout = 5 * time.Second
)

var (
	current = prometheus.NewDesc("coderd_provisionerd_jobs_current",
		"Jobs that run on provisioners that are connected to this server.", []string{"provisioner"}, nil)
	daemons = prometheus.NewDesc("coderd_provisionerd_num_daemons", "Provisioners that are connected to this server.",
		nil, nil)
)

func newMetrics(s *Service) *metrics {
	kind := []string{"organization_name", "preset_name", "template_name"}
	buckets := []float64{.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
	return &metrics{
		service: s,
		jobs: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "coderd_provisionerd_job_timings_seconds",
			Help: "How long jobs ran, by outcome (success, failed, canceled).", Buckets: buckets}, []string{"provisioner", "status"}),
		builds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "coderd_provisionerd_workspace_build_timings_seconds",
			Help: "How long workspace builds ran.", Buckets: buckets}, []string{"status", "template_name", "workspace_transition"}),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "codermesh_job_queue_seconds",
			Help: "How long jobs that have ended had waited for a provisioner.", Buckets: []float64{.05, .1, .25, .5, 1, 5, 15, 60, 300, 900, 3600}}),
		created: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "coderd_workspace_creation_total",
			Help: "Workspaces that were created, without prebuilt ones."}, kind),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "coderd_workspace_creation_duration_seconds",
			Help: "How long it took to create workspaces, from the request to the end of the build; type is regular or prebuild.", Buckets: buckets}, append(kind, "type")),
		claimed: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "coderd_prebuilt_workspace_claim_duration_seconds",
			Help: "How long it took to give prebuilt workspaces to their users, from the request to the end of the build.", Buckets: buckets}, kind),
	}
}

// Life ends when the service stops.
func (s *Service) Life() context.Context { return s.ctx }

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
	return []prometheus.Collector{m.jobs, m.builds, &m.total, m.waited, m.created, m.took, m.claimed}
}

// count counts a job that this server has ended, after the transaction that ended it. A job that the database cannot
// describe now is not counted, and the log names it.
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
	if job.Transition == "" {
		return
	}
	s.metrics.total.add(buildLabels{job.Transition, status, job.TemplateName, job.VersionName, job.WorkspaceName, job.OwnerName})
	if job.Status != statusSucceeded {
		return
	}
	kind, since := []string{job.OrganizationName, job.PresetName, job.TemplateName}, job.CompletedAt.Sub(job.CreatedAt).Seconds()
	switch first := job.BuildNumber == 1; {
	case job.Claims:
		s.metrics.claimed.WithLabelValues(kind...).Observe(since)
	case first && job.Prebuilt:
		s.metrics.took.WithLabelValues(append(kind, "prebuild")...).Observe(since)
	case first:
		s.metrics.created.WithLabelValues(kind...).Inc()
		s.metrics.took.WithLabelValues(append(kind, "regular")...).Observe(since)
	}
}
