package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// routes are the routes of the world's server, and the log of each job, which other packages check the permission for.
type routes struct{ *jobs.Service }

func (r routes) Routes(mux *httpapi.Mux) {
	r.Service.Routes(mux)
	mux.Handle("GET /logs/{job}", rbac.SignedIn, func(rw http.ResponseWriter, req *http.Request) error {
		return r.ServeLogs(rw, req, uuid.MustParse(req.PathValue("job")))
	})
}

// api is the server as users see it: ann owns the world's jobs, and olga the deployment.
type api struct {
	w   *world
	url *url.URL
}

func (w *world) api() api { return api{w, w.Serve(routes{w.service})} }

// call sends a request as a user, decodes the answer into v unless that is nil, and returns the status.
func (a api) call(as, method, path string, v any) int {
	t := a.w.T
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, a.url.String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(sdk.SessionHeader, a.w.Token(as))
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if v != nil {
		if err := json.NewDecoder(res.Body).Decode(v); err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
	}
	return res.StatusCode
}

// dial follows a job's log as ann.
func (a api) dial(job uuid.UUID, query string) *websock.Conn {
	t := a.w.T
	t.Helper()
	target := a.url.JoinPath("logs", job.String())
	target.RawQuery = query
	ws, err := websock.Dial(t.Context(), target, websock.DialOptions{Header: http.Header{sdk.SessionHeader: {a.w.Token("ann")}}, ReadLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.CloseNow() })
	return ws
}

const org = "/api/v2/organizations/default"

// busy is a world with a daemon that runs one of two jobs of ann's until the test ends.
func busy(t *testing.T) (w *world, s api, running, waiting uuid.UUID) {
	t.Helper()
	w = newWorld(t, nil)
	s = w.api()
	gate := make(chan struct{})
	t.Cleanup(func() { close(gate) })
	p := w.start("one", nil, &executor{run: blockUntil(gate)}, nil)
	<-p.Started()
	running, waiting = w.insert(nil), w.insert(nil)
	w.await(running, "running")
	return w, s, running, waiting
}

// TestListsOfJobs checks who sees which jobs, and what a query selects.
func TestListsOfJobs(t *testing.T) {
	t.Parallel()
	w, s, running, waiting := busy(t)
	var listed []sdk.ProvisionerJob
	for as, want := range map[string]int{"olga": 2, "ann": 2, "eve": 0} {
		if status := s.call(as, "GET", org+"/provisionerjobs", &listed); status != 200 || len(listed) != want {
			t.Errorf("%s lists jobs: status %d, %d jobs, want %d", as, status, len(listed), want)
		}
	}
	if s.call("olga", "GET", org+"/provisionerjobs?status=pending", &listed); len(listed) != 1 || listed[0].ID != waiting || listed[0].QueuePosition != 1 {
		t.Errorf("pending jobs: %+v", listed)
	}
	for query, want := range map[string]int{
		"initiator=ann": 2, "initiator=" + w.user.String(): 2, "initiator=eve": 0, "initiator=me": 0,
		"ids=" + waiting.String(): 1, "ids=" + waiting.String() + "," + running.String(): 2, "ids=" + uuid.NewString(): 0,
		"tags=" + url.QueryEscape(`{"scope":"organization"}`): 2, "tags=" + url.QueryEscape(`{"region":"eu"}`): 0,
		"ids=" + waiting.String() + "&status=running": 0, "limit=1": 1, "offset=2": 0,
	} {
		if status := s.call("olga", "GET", org+"/provisionerjobs?"+query, &listed); status != 200 || len(listed) != want {
			t.Errorf("jobs with %s: status %d, %d jobs, want %d", query, status, len(listed), want)
		}
	}
	if s.call("olga", "GET", org+"/provisionerjobs?limit=1&offset=1", &listed); len(listed) != 1 || listed[0].ID != running {
		t.Errorf("the second page has %+v, want the older job", listed)
	}
	if status := s.call("olga", "GET", org+"/provisionerjobs?offset=-1", nil); status != 400 {
		t.Errorf("offset -1: status %d, want 400", status)
	}
	if s.call("eve", "GET", org+"/provisionerjobs?initiator=ann", &listed); len(listed) != 0 {
		t.Errorf("eve sees ann's jobs: %+v", listed)
	}
	for _, query := range []string{"ids=x", "tags=region", "tags=" + url.QueryEscape(`{"a":1}`), "tags=null", "limit=-1"} {
		for _, list := range []string{"/provisionerjobs?", "/provisionerdaemons?"} {
			if status := s.call("olga", "GET", org+list+query, nil); status != 400 {
				t.Errorf("%s%s: status %d, want 400", list, query, status)
			}
		}
	}
}

// TestListsOfDaemons checks who sees which daemons, and what a query selects.
func TestListsOfDaemons(t *testing.T) {
	t.Parallel()
	w, s, running, _ := busy(t)
	var daemons []sdk.ProvisionerDaemon
	for query, want := range map[string]int{
		"tags=" + url.QueryEscape(`{"scope":"organization"}`): 1, "tags=" + url.QueryEscape(`{"region":"eu"}`): 0, "ids=" + uuid.NewString(): 0,
		"status=busy": 1, "status=idle": 0, "status=idle,busy": 1, "offline=false": 1, "limit=1": 1, "limit=0": 1, "max_age=1h": 1,
	} {
		if status := s.call("olga", "GET", org+"/provisionerdaemons?"+query, &daemons); status != 200 || len(daemons) != want {
			t.Errorf("daemons with %s: status %d, %d daemons, want %d", query, status, len(daemons), want)
		}
	}
	if status := s.call("olga", "GET", org+"/provisionerdaemons", &daemons); status != 200 || len(daemons) != 1 {
		t.Fatalf("daemons: status %d, %+v", status, daemons)
	}
	if d := daemons[0]; d.Name != "one" || d.Status != sdk.ProvisionerBusy || d.CurrentJob == nil || d.CurrentJob.ID != running {
		t.Errorf("daemon: %+v", d)
	} else if d.ServerID == nil || *d.ServerID == uuid.Nil {
		t.Error("the daemon's server is not named")
	}
	// A user who may not see all provisioners sees those that serve this user.
	own := w.start("anns", map[string]string{"scope": "user", "owner": w.user.String()}, nil, nil)
	<-own.Started()
	for who, want := range map[string]int{"eve": 0, "ann": 1, "olga": 2} {
		var seen []sdk.ProvisionerDaemon
		if status := s.call(who, "GET", org+"/provisionerdaemons", &seen); status != 200 || len(seen) != want {
			t.Errorf("%s: status %d, sees %+v", who, status, seen)
		}
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	w, s, running, waiting := busy(t)
	for _, c := range []struct {
		as, method, path string
		want             int
	}{
		{"eve", "GET", org + "/provisionerjobs/" + waiting.String(), 404},
		{"eve", "PATCH", org + "/provisionerjobs/" + waiting.String() + "/cancel", 404},
		{"ann", "GET", org + "/provisionerjobs/" + waiting.String(), 200},
		{"ann", "GET", org + "/provisionerjobs/" + uuid.NewString(), 404},
		{"ann", "GET", org + "/provisionerjobs/x", 400},
		{"ann", "GET", "/api/v2/organizations/other/provisionerjobs", 404},
		{"ann", "PATCH", org + "/provisionerjobs/" + waiting.String() + "/cancel", 200},
		{"ann", "PATCH", org + "/provisionerjobs/" + waiting.String() + "/cancel", 409},
		{"olga", "PATCH", org + "/provisionerjobs/" + running.String() + "/cancel", 200},
	} {
		if got := s.call(c.as, c.method, c.path, nil); got != c.want {
			t.Errorf("%s: %s %s: status %d, want %d", c.as, c.method, c.path, got, c.want)
		}
	}
	var daemons []sdk.ProvisionerDaemon
	w.await(running, "canceled")
	testwait.Until(w.T, "the daemon's last job is shown", func() error {
		s.call("olga", "GET", org+"/provisionerdaemons", &daemons)
		d := daemons[0]
		shown := d.Status == sdk.ProvisionerIdle && d.PreviousJob != nil && d.PreviousJob.ID == running
		return testwait.Unless(shown, "the daemon is %s, its last job %+v, want %s", d.Status, d.PreviousJob, running)
	})
}

func TestLogsAreListedAndFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	s := w.api()
	step := make(chan struct{})
	w.start("one", nil, &executor{run: func(_ context.Context, _ <-chan struct{}, run job.Run) *provisionerpb.Result {
		for i := range 500 {
			say(run, fmt.Sprint(i))
			if i == 250 {
				<-step
			}
		}
		return succeeded("")
	}}, nil)
	id := w.insert(nil)

	conn := s.dial(id, "follow&after=0")
	var followed, want []string
	var last, middle int64
	for {
		var line sdk.JobLog
		err := conn.ReadJSON(t.Context(), &line)
		if closed, ok := errors.AsType[*websock.CloseError](err); ok && closed.Status == websock.StatusNormal {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if line.ID <= last {
			t.Fatalf("line %d follows %d", line.ID, last)
		}
		last = line.ID
		if line.Stage == "test" {
			followed = append(followed, line.Output)
		}
		if line.Output == "100" {
			middle = line.ID
			close(step) // the rest is not written before the follower has received this line
		}
	}
	for i := range 500 {
		want = append(want, fmt.Sprint(i))
	}
	if diff := cmp.Diff(want, followed); diff != "" {
		t.Errorf("followed (-want +got):\n%s", diff)
	}
	list := func(query string) (out []string) {
		var lines []sdk.JobLog
		if status := s.call("ann", "GET", "/logs/"+id.String()+query, &lines); status != 200 {
			t.Fatalf("list: status %d", status)
		}
		for _, line := range lines {
			if line.Stage == "test" {
				out = append(out, line.Output)
			}
		}
		return out
	}
	if diff := cmp.Diff(want, list("")); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[101:], list(fmt.Sprint("?after=", middle))); diff != "" {
		t.Errorf("listed from the middle (-want +got):\n%s", diff)
	}
	if status := s.call("ann", "GET", "/logs/"+id.String()+"?after=x", nil); status != 400 {
		t.Errorf("after=x: status %d, want 400", status)
	}
}

// follow follows a job's log. The function that it returns reads until a line satisfies the predicate.
func (a api) follow(id uuid.UUID) (until func(what string, is func(sdk.JobLog) bool)) {
	t := a.w.T
	t.Helper()
	ws := a.dial(id, "follow")
	ctx, cancel := context.WithTimeout(t.Context(), coderdtest.Patience)
	t.Cleanup(cancel)
	return func(what string, is func(sdk.JobLog) bool) {
		t.Helper()
		for {
			data, err := ws.Read(ctx)
			if err != nil {
				t.Fatalf("until %s: %v", what, err)
			}
			var line sdk.JobLog
			if err := json.Unmarshal(data, &line); err != nil {
				t.Fatal(err)
			}
			if is(line) {
				return
			}
		}
	}
}

// TestFullDiskIsToldToFollowers checks that while the database's disk is full, a job's reports wait at its provisioner, and
// followers of the log learn why. Once there is space again the job ends with everything that it reported.
func TestFullDiskIsToldToFollowers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	s := w.api()
	began, report := make(chan struct{}), make(chan struct{})
	w.start("one", nil, &executor{run: func(_ context.Context, _ <-chan struct{}, run job.Run) *provisionerpb.Result {
		close(began)
		<-report
		say(run, "reported")
		return succeeded("s")
	}}, nil)
	id := w.insert(nil)
	<-began
	w.Exec(fullDisk)
	w.Exec(`CREATE TRIGGER full_disk BEFORE INSERT ON provisioner_job_logs FOR EACH STATEMENT EXECUTE FUNCTION full_disk()`)
	close(report)
	until := s.follow(id)
	until("the follower is told", func(l sdk.JobLog) bool {
		return l.Level == "warn" && strings.Contains(l.Output, "The database's disk is full.")
	})
	if row := w.row(id); row.Status != "running" {
		t.Errorf("the job is %s: %s", row.Status, row.Error)
	}
	w.Exec(`DROP TRIGGER full_disk ON provisioner_job_logs`)
	until("what was reported is stored", func(l sdk.JobLog) bool { return l.Output == "reported" })
	w.await(id, "succeeded")
}

// TestFullDiskIsToldToFollowersOfWaitingJobs checks that followers of a job that waits because the database's disk is full
// learn why, and that the job begins when there is space again.
func TestFullDiskIsToldToFollowersOfWaitingJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	s := w.api()
	w.Exec(fullDisk)
	w.Exec(`CREATE TRIGGER full_disk BEFORE UPDATE ON provisioner_jobs FOR EACH STATEMENT EXECUTE FUNCTION full_disk()`)
	w.start("one", nil, &executor{run: func(context.Context, <-chan struct{}, job.Run) *provisionerpb.Result { return succeeded("s") }}, nil)
	id := w.insert(nil)
	until := s.follow(id)
	until("the follower is told", func(l sdk.JobLog) bool {
		return l.Level == "warn" && strings.Contains(l.Output, "The database's disk is full.") && strings.Contains(l.Output, "The job starts as soon as")
	})
	if row := w.row(id); row.Status != "pending" {
		t.Errorf("the job is %s: %s", row.Status, row.Error)
	}
	w.Exec(`DROP TRIGGER full_disk ON provisioner_jobs`)
	w.await(id, "succeeded")
}

// TestFullDiskKeepsProvisionersAway checks the same when no provisioner can connect, because its session must be stored too.
func TestFullDiskKeepsProvisionersAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	s := w.api()
	w.Exec(fullDisk)
	w.Exec(`CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON provisioner_daemons FOR EACH STATEMENT EXECUTE FUNCTION full_disk()`)
	id := w.insert(nil)
	until := s.follow(id)
	w.start("one", nil, &executor{run: func(context.Context, <-chan struct{}, job.Run) *provisionerpb.Result { return succeeded("s") }}, nil)
	until("the follower is told", func(l sdk.JobLog) bool {
		return l.Level == "warn" && strings.Contains(l.Output, "The database's disk is full.")
	})
	w.Exec(`DROP TRIGGER full_disk ON provisioner_daemons`)
	w.await(id, "succeeded")
}

// fullDisk creates a trigger function that fails as PostgreSQL does on a full disk.
const fullDisk = `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$`
