package health

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// DefaultSlowDatabase is the round trip above which pages feel slow: a page makes about ten.
const DefaultSlowDatabase = 50 * time.Millisecond

// waitsLong is how long a job may wait before an operator should investigate.
const waitsLong = 5 * time.Minute

func (s *Service) database(ctx context.Context) sdk.HealthSection {
	section := good("database", "Database", "", sdk.Map[any]{})
	start := time.Now()
	facts, err := s.opts.DB.GetServerFacts(ctx)
	if err != nil {
		return bad(section, sdk.HealthError, CodeDatabaseUnreachable, "The database does not answer: "+err.Error()+".",
			"Check that PostgreSQL runs and that --postgres-url is right. The server recovers when the database is back.")
	}
	first := time.Since(start)
	start = time.Now()
	if _, err = s.opts.DB.GetServerFacts(ctx); err == nil { // on an open connection
		first = min(first, time.Since(start))
	}
	pool := s.opts.DB.Pool.Stat()
	section.Details = sdk.Map[any]{
		"latency_ms": millis(first), "version": facts.Version, "in_recovery": facts.InRecovery,
		"connections_used": pool.AcquiredConns(), "connections_max": pool.MaxConns(),
	}
	if err := s.opts.DB.ProbeWrite(ctx, probe()); err != nil {
		return bad(section, sdk.HealthError, CodeDatabaseNoWrite, "The database answers, but cannot write: "+strings.TrimSuffix(err.Error(), ".")+".",
			"Free space on PostgreSQL's disk, or find out why it refuses writes. Until then nothing can be built or changed. The server recovers without a restart.")
	}
	section.Message = fmt.Sprintf("PostgreSQL %s responds in %.1f ms.", facts.Version, millis(first))
	if first > s.opts.SlowDatabase {
		return bad(section, sdk.HealthWarning, CodeDatabaseSlow,
			fmt.Sprintf("The database takes %.0f ms to answer.", millis(first)),
			"Run PostgreSQL in the same network as the server, and check its load.")
	}
	return section
}

// probe returns more data than fits into the space that a row leaves free, so that a full disk is noticed. The data
// does not compress.
func probe() []byte {
	data := make([]byte, 16<<10)
	rand.Read(data)
	return data
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (s *Service) accessURL(ctx context.Context) sdk.HealthSection {
	u := s.opts.AccessURL
	section := good("access_url", "Access URL", "", sdk.Map[any]{"access_url": u.String()})
	const remedy = "Set --access-url to the URL at which users and workspaces reach the server, and check any proxies in between."
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("healthz").String(), nil)
	if err != nil {
		return bad(section, sdk.HealthError, CodeAccessURLUnreachable, "The access URL is invalid: "+err.Error()+".",
			remedy)
	}
	start := time.Now()
	resp, err := s.opts.Client.Do(r)
	if err != nil {
		return bad(section, sdk.HealthError, CodeAccessURLUnreachable,
			"The server cannot reach itself at "+u.String()+": "+cause(err)+".", remedy)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64))
	section.Details["status"], section.Details["latency_ms"] = resp.StatusCode, millis(time.Since(start))
	if text := strings.TrimSpace(string(body)); resp.StatusCode == http.StatusServiceUnavailable && (text == Draining || text == CutOff) {
		return bad(section, sdk.HealthWarning, CodeAccessURLNotServing,
			fmt.Sprintf("%s leads to a server that takes no new users: it is %s.", u, text),
			"Wait until it has stopped, or until the servers reach each other. A load balancer in front of several servers leads to another one meanwhile.")
	}
	if err != nil || resp.StatusCode != http.StatusOK || strings.TrimSpace(string(body)) != "OK" {
		return bad(section, sdk.HealthError, CodeAccessURLOther,
			fmt.Sprintf("%s answers with status %d and is not this server.", u, resp.StatusCode), remedy)
	}
	if got := resp.Header.Get("X-Coder-Build-Version"); got != buildinfo.Version() && !s.runs(ctx, got) {
		return bad(section, sdk.HealthError, CodeAccessURLOther,
			fmt.Sprintf("%s is another server with version %q.", u, got), remedy)
	}
	section.Message = fmt.Sprintf("The server is reachable at %s.", u)
	switch ip := net.ParseIP(u.Hostname()); {
	case u.Hostname() == "localhost" || ip != nil && ip.IsLoopback():
		return bad(section, sdk.HealthWarning, CodeAccessURLLoopback,
			fmt.Sprintf("%s is reachable from this machine only.", u),
			"For users and workspaces elsewhere, set --access-url to a URL that they can reach.")
	case u.Scheme != "https":
		return bad(section, sdk.HealthWarning, CodeAccessURLPlain, "Sessions use plain HTTP without encryption.",
			"Serve HTTPS with --tls-address or a reverse proxy, and set --access-url to its URL.")
	}
	return section
}

// runs reports whether a server of this deployment runs a version, as some do while they are upgraded one by one.
func (s *Service) runs(ctx context.Context, version string) bool {
	rows, err := s.opts.DB.ListServers(ctx, database.ServerLifetime.Seconds())
	return err == nil &&
		slices.ContainsFunc(rows, func(row dbsqlc.ListServersRow) bool { return row.Version == version })
}

// others are the programs of a kind whose version differs from this server's.
type others struct {
	names    sdk.List[string] // with their versions
	remedies []string         // distinct
}

// add adds a program, unless its version is this server's.
func (o *others) add(name, version string) {
	words, remedy := buildinfo.Difference(version, "them")
	if words == "" {
		return
	}
	o.names = append(o.names, fmt.Sprintf("%s (%s, %s)", name, version, words))
	if !slices.Contains(o.remedies, remedy) {
		o.remedies = append(o.remedies, remedy)
	}
}

// message says which programs differ from this server, and how.
func (o *others) message(kind string) string {
	return fmt.Sprintf("%s with another version than this server's %s are connected: %s.", kind, buildinfo.Version(),
		strings.Join(o.names, ", "))
}

func (o *others) remedy() string { return strings.Join(o.remedies, " ") }

// cause returns the last part of a chain of errors, which is the part that an operator can act on.
func cause(err error) string {
	text := err.Error()
	return strings.TrimSpace(text[strings.LastIndex(text, ": ")+1:])
}

func (s *Service) relay(context.Context) sdk.HealthSection {
	links, stun := s.opts.Relays()
	section := good("relay", "Relay", "The relay is connected.", sdk.Map[any]{"relays": links, "stun": stun})
	connected, reason := false, "it has not connected yet"
	for _, link := range links {
		connected = connected || link.Connected
		if link.Err != "" {
			reason = link.Err
		}
	}
	if !connected {
		return bad(section, sdk.HealthError, CodeRelayNotConnected, "This server's node cannot reach the relay: "+reason+".",
			"Peers that cannot reach each other directly need the relay. Check that proxies in front of the server pass /derp.")
	}
	if !stun {
		return bad(section, sdk.HealthWarning, CodeRelayNoSTUN, "The server does not answer STUN: peers behind NAT stay relayed.",
			"Start it with --stun-address, and open that UDP port.")
	}
	return section
}

func (s *Service) provisioners(ctx context.Context) sdk.HealthSection {
	section := good("provisioners", "Provisioners", "", sdk.Map[any]{})
	daemons, err := s.opts.DB.ListProvisioners(ctx, s.opts.Organization)
	if err != nil {
		return bad(section, sdk.HealthError, CodeDatabaseUnreachable,
			"Provisioners cannot be listed: the database does not answer.", "See the section on the database.")
	}
	waiting, err := s.opts.DB.GetWaitingJobs(ctx, s.opts.Organization)
	if err != nil {
		return bad(section, sdk.HealthError, CodeDatabaseUnreachable,
			"Jobs cannot be counted: the database does not answer.", "See the section on the database.")
	}
	online, differ := 0, others{names: sdk.List[string]{}}
	for _, d := range daemons {
		if !d.Online {
			continue
		}
		online++
		differ.add(d.Name, d.Version)
	}
	section.Details = sdk.Map[any]{"online": online, "other_versions": differ.names, "jobs_waiting": waiting.Waiting, "oldest_waits_seconds": int(waiting.OldestSeconds)}
	section.Message = fmt.Sprintf("Provisioners connected: %d. Jobs waiting: %d.", online, waiting.Waiting)
	switch {
	case online == 0:
		return bad(section, sdk.HealthError, CodeProvisionersNone, "No provisioner is connected: workspaces cannot start or stop.",
			"Start the server with --provisioner-daemons, or start an external provisioner with: coder provisioner start.")
	case time.Duration(waiting.OldestSeconds*float64(time.Second)) > waitsLong:
		return bad(section, sdk.HealthWarning, CodeJobsWaiting, fmt.Sprintf("Jobs waiting: %d, the oldest for %s.",
			waiting.Waiting, time.Duration(waiting.OldestSeconds)*time.Second),
			"The list of jobs shows what each one waits for. Start more provisioners, or provisioners with the missing tags.")
	case len(differ.names) > 0:
		return bad(section, sdk.HealthWarning, CodeProvisionersVersion, differ.message("Provisioners"), differ.remedy())
	case len(s.opts.Concerns) > 0:
		return bad(section, sdk.HealthWarning, CodeTemplatesUnconfined, "Built-in provisioners cannot fully confine templates: "+strings.Join(s.opts.Concerns, "; ")+".",
			"Install bubblewrap on the server's machine and restart the server. See docs/provisioners.md.")
	}
	return section
}

// regions checks the region proxies. A proxy that has never connected is not a finding: its operator may still be
// installing it.
func (s *Service) regions(ctx context.Context) sdk.HealthSection {
	section := good("workspace_proxy", "Regions", "", sdk.Map[any]{})
	rows, err := s.opts.DB.ListWorkspaceProxies(ctx, database.ServerLifetime.Seconds())
	if err != nil {
		return bad(section, sdk.HealthError, CodeDatabaseUnreachable,
			"Region proxies cannot be listed: the database does not answer.", "See the section on the database.")
	}
	connected, unreachable, fresh, differ := 0, []string{}, []string{}, others{names: sdk.List[string]{}}
	for _, row := range rows {
		p := row.WorkspaceProxy
		switch {
		case !row.Connected && p.SeenAt == nil:
			fresh = append(fresh, p.Name)
		case !row.Connected:
			unreachable = append(unreachable, p.Name)
		default:
			connected++
			differ.add(p.Name, p.Version)
		}
	}
	section.Details = sdk.Map[any]{"connected": connected, "unreachable": unreachable, "never_connected": fresh, "other_versions": differ.names}
	section.Message = fmt.Sprintf("Region proxies connected: %d.", connected)
	switch {
	case len(rows) == 0:
		section.Message = "There are no region proxies. The servers relay all traffic."
	case len(unreachable) > 0:
		return bad(section, sdk.HealthWarning, CodeRegionUnreachable, "Region proxies are not connected: "+strings.Join(unreachable, ", ")+". Nodes use other relays.",
			"Start them again, and check that they reach the server and that the server reaches their access URLs. Any "+
				"that you have taken down for good is listed until you delete it: coder wsproxy delete NAME.")
	case len(differ.names) > 0:
		return bad(section, sdk.HealthWarning, CodeRegionVersion, differ.message("Region proxies"), differ.remedy())
	}
	return section
}
