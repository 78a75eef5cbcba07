package health

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// Codes of findings about servers.
const (
	CodeServerUnreachable = "server_unreachable"
	CodeServerCertificate = "server_certificate"
	CodeServerOther       = "server_other"
	CodeServerSilent      = "server_silent"
	CodeServerLink        = "server_link_missing"
	CodeServerRelay       = "server_relay_missing"
	CodeServerClock       = "server_clock"
	CodeServerVersion     = "server_version"
)

const (
	selfPath     = "/api/v2/debug/server"
	selfHeader   = "Coder-Server-Question"
	selfAsked    = "server question"
	selfAnswered = "server answer"
	// selfLifetime bounds how long a question and its answer are valid. The clocks of two servers may differ by a
	// minute each from the database's.
	selfLifetime = 3 * time.Minute
	selfTimeout  = 3 * time.Second
	// clockTimeout bounds a server's questions to the database about itself. It leaves the others time to answer before
	// the section's time ends.
	clockTimeout = time.Second
	maxAnswer    = 1 << 20 // bytes

	// listedFor is how long a server that has stopped without a goodbye stays in the report.
	listedFor = 10 * time.Minute
	// settleTime is how long after its start a server may lack links.
	settleTime = 15 * time.Second
	// mixedFor is how long servers of different versions may run beside each other without a warning.
	mixedFor = time.Hour
	// maxSkew is by how much a clock may differ from the database's without a warning. A server that differs by more
	// than a minute does not start.
	maxSkew = 10 * time.Second
)

// question names who asks whom. An answer repeats it.
type question struct {
	From  uuid.UUID `json:"f"`
	To    uuid.UUID `json:"t"`
	Nonce string    `json:"n"`
}

// answered is the body of an answer: a selfReport, and the proof that a server of the deployment wrote it as the answer
// to a question.
type answered struct {
	Report string `json:"report"`
	Proof  string `json:"proof"`
}

// proof is what the proof of an answer says.
type proof struct {
	Question question `json:"q"`
	Sum      [32]byte `json:"s"` // SHA-256 of the report
}

// selfReport is what a server knows about itself.
type selfReport struct {
	Version         string           `json:"version"`
	ClockMillis     float64          `json:"clock_ms"`
	DatabaseMillis  float64          `json:"database_ms"`
	DatabaseProblem string           `json:"database_problem,omitempty"`
	Links           []sdk.ServerLink `json:"links"`
	Stopping        bool             `json:"stopping,omitempty"`

	databaseNow time.Time
}

// self measures this server.
func (s *Service) self(ctx context.Context) selfReport {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	r := selfReport{Version: buildinfo.Version(), Links: s.opts.Links(), Stopping: s.opts.Stopping()}
	for range 2 { // the second one uses an open connection
		begin := time.Now()
		theirs, err := s.opts.DB.Clock(ctx)
		if err != nil {
			r.DatabaseProblem = cause(err)
			return r
		}
		end := time.Now()
		r.databaseNow = theirs
		r.DatabaseMillis, r.ClockMillis = millis(end.Sub(begin)), 0
		// The database read its clock between begin and end.
		switch {
		case begin.After(theirs):
			r.ClockMillis = millis(begin.Sub(theirs))
		case end.Before(theirs):
			r.ClockMillis = -millis(theirs.Sub(end))
		}
	}
	return r
}

// answer tells another server of the deployment about this one. For other clients the route does not exist.
func (s *Service) answer(w http.ResponseWriter, r *http.Request) error {
	var q question
	if err := s.opts.Signer.Verify(selfAsked, secret.Token(r.Header.Get(selfHeader)), &q); err != nil {
		return rbac.NotFound(rbac.Deployment)
	}
	ctx, cancel := context.WithTimeout(r.Context(), selfTimeout)
	defer cancel()
	a, err := s.encodeAnswer(s.self(ctx), question{q.From, s.opts.ID, q.Nonce})
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, a)
}

func (s *Service) encodeAnswer(own selfReport, to question) (answered, error) {
	report, err := json.Marshal(own)
	if err != nil {
		return answered{}, fmt.Errorf("encode report: %w", err)
	}
	token, err := s.opts.Signer.Sign(selfAnswered, proof{to, sha256.Sum256(report)}, selfLifetime)
	if err != nil {
		return answered{}, err
	}
	return answered{string(report), token.Reveal()}, nil
}

// errOther reports that a replica URL leads to a server that it does not belong to.
var errOther = errors.New("another server answers")

// ask asks another server about itself.
func (s *Service) ask(ctx context.Context, to uuid.UUID, base string) (selfReport, error) {
	u, err := url.Parse(base)
	if err != nil {
		return selfReport{}, err
	}
	q := question{s.opts.ID, to, secret.Text(16)}
	token, err := s.opts.Signer.Sign(selfAsked, q, selfLifetime)
	if err != nil {
		return selfReport{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath(selfPath).String(), nil)
	if err != nil {
		return selfReport{}, err
	}
	r.Header.Set(selfHeader, token.Reveal())
	resp, err := s.opts.Peers.Do(r)
	if err != nil {
		return selfReport{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return selfReport{}, fmt.Errorf("it answers with %s", resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return selfReport{}, err
	}
	return s.decodeAnswer(body, q)
}

// decodeAnswer opens an answer to a question.
func (s *Service) decodeAnswer(body []byte, q question) (selfReport, error) {
	var a answered
	var p proof
	if json.Unmarshal(body, &a) != nil || s.opts.Signer.Verify(selfAnswered, secret.Token(a.Proof), &p) != nil ||
		p.Sum != sha256.Sum256([]byte(a.Report)) {
		return selfReport{}, errors.New("its answer is not from a server of this deployment")
	}
	switch got := p.Question; {
	case got.From != q.From || got.Nonce != q.Nonce:
		return selfReport{}, errors.New("its answer is to another question")
	case got.To != q.To:
		return selfReport{}, fmt.Errorf("%w: %s", errOther, got.To)
	}
	var report selfReport
	if err := json.Unmarshal([]byte(a.Report), &report); err != nil {
		return selfReport{}, fmt.Errorf("decode its answer: %w", err)
	}
	return report, nil
}

// asked is a server of the table, and its answer.
type asked struct {
	sdk.ServerHealth
	row    dbsqlc.ListServersRow
	report selfReport
	alive  bool
	age    time.Duration // since its start
	err    error
}

// servers checks the servers of the deployment and their links.
func (s *Service) servers(ctx context.Context) (sdk.HealthSection, []sdk.ServerHealth) {
	section := good("servers", "Servers", "", sdk.Map[any]{})
	own := s.self(ctx)
	rows, now, err := s.listServers(ctx, own)
	if err != nil {
		return bad(section, sdk.HealthError, CodeDatabaseUnreachable, "Servers cannot be listed: the database does not answer.", "See the section on the database."), nil
	}
	all := make([]*asked, 0, len(rows))
	var wait sync.WaitGroup
	for _, row := range rows {
		a := &asked{row: row, alive: now.Sub(row.BeatAt) < database.ServerLifetime, age: now.Sub(row.StartedAt)}
		a.ServerHealth = sdk.ServerHealth{
			ID: row.ID, Name: host(row.Url), ReplicaURL: row.Url, Version: row.Version, Region: row.Region,
			StartedAt: row.StartedAt, LastSeen: row.BeatAt,
			Reporter: row.ID == s.opts.ID,
		}
		all = append(all, a)
		switch {
		case a.Reporter:
			a.alive, a.report, a.Answered = true, own, true
		case a.alive:
			wait.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, selfTimeout)
				defer cancel()
				begin := time.Now()
				a.report, a.err = s.ask(ctx, a.ID, a.ReplicaURL)
				a.Answered, a.LatencyMillis = a.err == nil, millis(time.Since(begin))
			})
		}
	}
	wait.Wait()
	nameServers(all)
	running, links := 0, 0
	for _, a := range all {
		if a.alive {
			running++
		}
		a.Links, a.ClockMillis, a.DatabaseLatencyMillis = a.report.Links, a.report.ClockMillis, a.report.DatabaseMillis
		a.Stopping = a.report.Stopping
		for _, l := range a.Links {
			if l.Connected {
				links++
			}
		}
	}
	findings(all, s.opts.SlowDatabase)
	section.Details = sdk.Map[any]{"running": running, "links": (links + 1) / 2}
	section.Message = "One server runs."
	if running > 1 {
		section.Message = fmt.Sprintf("%d servers run, and all are linked.", running)
	}
	list := make([]sdk.ServerHealth, len(all))
	for i, a := range all {
		list[i] = a.ServerHealth
	}
	return summarize(section, list), list
}

// listServers returns the servers of the deployment and the database's time. If it does not answer, they are those that
// it last listed.
func (s *Service) listServers(ctx context.Context, own selfReport) ([]dbsqlc.ListServersRow, time.Time, error) {
	err := errors.New(own.DatabaseProblem)
	if own.DatabaseProblem == "" {
		var rows []dbsqlc.ListServersRow
		if rows, err = s.opts.DB.ListServers(ctx, listedFor.Seconds()); err == nil {
			s.rows, s.now = rows, own.databaseNow
		}
	}
	if s.rows == nil {
		return nil, time.Time{}, err
	}
	return s.rows, s.now, nil
}

// summarize adds the worst finding to the section.
func summarize(section sdk.HealthSection, list []sdk.ServerHealth) sdk.HealthSection {
	var worst sdk.ServerFinding
	n := 0
	for _, server := range list {
		for _, f := range server.Findings {
			if n++; worst.Code == "" || worse(f.Severity, worst.Severity) {
				worst = f
			}
		}
	}
	if n == 0 {
		return section
	}
	message := worst.Message
	if n > 1 {
		message += fmt.Sprintf(" Findings about servers in all: %d.", n)
	}
	return bad(section, worst.Severity, worst.Code, message, worst.Remedy)
}

func host(replicaURL string) string {
	u, err := url.Parse(replicaURL)
	if err != nil {
		return replicaURL
	}
	return u.Host
}

// nameServers makes names unique.
func nameServers(all []*asked) {
	count := map[string]int{}
	for _, a := range all {
		count[a.Name]++
	}
	for _, a := range all {
		if count[a.Name] > 1 {
			a.Name += " (" + a.ID.String()[:8] + ")"
		}
	}
}

// findings adds what an operator should correct to the servers. A round trip to the database that takes longer than
// slow is a finding.
func findings(all []*asked, slow time.Duration) {
	for _, a := range all {
		a.Findings = a.own(slow)
		if !a.alive || a.age < settleTime || !a.Answered {
			continue
		}
		for _, b := range all {
			if b != a && b.alive && b.age >= settleTime {
				a.between(b)
			}
		}
	}
	mixed := slices.ContainsFunc(all, func(a *asked) bool { return a.alive && a.Version != buildinfo.Version() })
	young := slices.ContainsFunc(all, func(a *asked) bool { return a.alive && a.age < mixedFor })
	for _, a := range all {
		if words, remedy := buildinfo.Difference(a.Version, "server "+a.Name); words != "" && mixed && !young &&
			a.alive {
			a.warn(sdk.HealthWarning, CodeServerVersion,
				fmt.Sprintf("Server %s has run version %s, %s, beside this server's %s for more than an hour.", a.Name,
					a.Version, words, buildinfo.Version()),
				"Finish the upgrade. "+remedy)
		}
	}
}

func (a *asked) warn(severity sdk.HealthSeverity, code, message, remedy string) {
	a.Findings = append(a.Findings, sdk.ServerFinding{Code: code, Severity: severity, Message: message, Remedy: remedy})
}

// own returns the findings about one server.
func (a *asked) own(slow time.Duration) sdk.List[sdk.ServerFinding] {
	a.Findings = nil
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	switch {
	case !a.alive:
		a.warn(sdk.HealthWarning, CodeServerSilent,
			fmt.Sprintf("Server %s has sent no heartbeat since %s.", a.Name, a.LastSeen.UTC().Format(time.DateTime)),
			"If it was not stopped on purpose, start it again and read its log. After ten minutes it is no longer listed.")
	case a.err == nil:
	case errors.As(a.err, &certificate) || errors.As(a.err, &authority):
		a.warn(sdk.HealthError, CodeServerCertificate,
			fmt.Sprintf("The certificate at %s is not trusted: %s.", a.ReplicaURL, cause(a.err)),
			"Install a certificate for that name from an authority that the servers' machines trust, or set --replica-url to a URL in a private network.")
	case errors.Is(a.err, errOther):
		a.warn(sdk.HealthError, CodeServerOther,
			fmt.Sprintf("The replica URL %s of server %s leads to another server.", a.ReplicaURL, a.ID),
			"Set each server's --replica-url to a URL that leads to that server alone, not to a load balancer.")
	case buildinfo.Compare(a.Version, buildinfo.Version()) < 0: // it may not know the question
	default:
		a.warn(sdk.HealthError, CodeServerUnreachable,
			fmt.Sprintf("Server %s does not answer at its replica URL %s: %s.", a.Name, a.ReplicaURL, cause(a.err)),
			"Set that server's --replica-url to a URL at which the other servers reach it, and open its port between the servers.")
	}
	if skew := time.Duration(a.ClockMillis * float64(time.Millisecond)); skew.Abs() > maxSkew {
		a.warn(sdk.HealthWarning, CodeServerClock, fmt.Sprintf("The clock of server %s differs from the database's by %s.", a.Name, skew.Abs().Round(time.Second)),
			"Synchronize the clocks of the machine and the database, for example with chrony. A difference of more than a minute keeps the server from starting.")
	}
	switch {
	case a.report.DatabaseProblem != "":
		a.warn(sdk.HealthError, CodeDatabaseUnreachable,
			fmt.Sprintf("Server %s cannot reach the database: %s.", a.Name, a.report.DatabaseProblem),
			"Check the network between that server and PostgreSQL, and its --postgres-url.")
	case a.DatabaseLatencyMillis > millis(slow) && !a.Reporter: // the section on the database reports the reporter's
		a.warn(sdk.HealthWarning, CodeDatabaseSlow,
			fmt.Sprintf("The database takes %.0f ms to answer server %s.", a.DatabaseLatencyMillis, a.Name),
			"Run PostgreSQL in the same network as the server, and check its load.")
	}
	return a.Findings
}

// between adds the findings about what a reports of b.
func (a *asked) between(b *asked) {
	i := slices.IndexFunc(a.Links, func(l sdk.ServerLink) bool { return l.Server == b.ID })
	var link sdk.ServerLink
	if i >= 0 {
		link = a.Links[i]
	}
	const remedy = "Each server must reach the others at their --replica-url. Check firewalls and proxies between the two. The server's log has the reason."
	reason := func(text string) string {
		if text == "" {
			return "."
		}
		return ": " + text + "."
	}
	if !link.Connected {
		a.warn(sdk.HealthError, CodeServerLink,
			fmt.Sprintf("Server %s has no link to %s%s", a.Name, b.Name, reason(link.Error)), remedy)
	}
	if !link.RelayConnected {
		a.warn(sdk.HealthError, CodeServerRelay, fmt.Sprintf("The relay of server %s cannot forward packets to the relay of %s%s", a.Name, b.Name, reason(link.RelayError)), remedy)
	}
}

// replicas lists the running servers as other programs know them.
func (s *Service) replicas(w http.ResponseWriter, r *http.Request) error {
	report := s.Report(r.Context(), false)
	list := sdk.List[sdk.Replica]{}
	for _, server := range report.Servers {
		if slices.ContainsFunc(server.Findings, func(f sdk.ServerFinding) bool { return f.Code == CodeServerSilent }) {
			continue
		}
		shown := sdk.Replica{
			ID: server.ID, CreatedAt: server.StartedAt, RelayAddress: server.ReplicaURL, RegionID: s.opts.RegionID,
			DatabaseLatency: int32(server.DatabaseLatencyMillis),
		}
		if u, err := url.Parse(server.ReplicaURL); err == nil {
			shown.Hostname = u.Hostname()
		}
		worst := slices.SortedStableFunc(slices.Values(server.Findings), func(x, y sdk.ServerFinding) int {
			return cmp.Compare(rank(y.Severity), rank(x.Severity))
		})
		if len(worst) > 0 {
			shown.Error = worst[0].Message
		}
		list = append(list, shown)
	}
	return httpapi.Write(w, http.StatusOK, list)
}
