package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/provisionerd/echo"
)

const (
	password = "Correct-Horse-9-Battery"
	psk      = "benchmark-pre-shared-key-of-this-run"
	slow     = 3 * time.Minute // a wait longer than this is a failure
)

// deployment is a server with its own database and a template. Its provisioners run in this process.
type deployment struct {
	dir, coder string
	keep       bool
	statements bool // counted
	url        *url.URL
	postgres   *embedded.Server
	db         *database.DB
	server     *exec.Cmd // nil while it does not run
	admin      *sdk.Client
	template   sdk.Template
	executor   *executor
}

// deployment returns the deployment, which the first call starts.
func (b *bench) deployment(ctx context.Context) (*deployment, error) {
	if b.deployed != nil {
		return b.deployed, nil
	}
	coder, err := filepath.Abs(b.coder)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "scale-")
	if err != nil {
		return nil, err
	}
	d := &deployment{dir: dir, coder: coder, keep: b.keep, statements: b.statements, executor: newExecutor()}
	if err := d.open(ctx); err != nil {
		return nil, errors.Join(err, d.close())
	}
	b.deployed = d
	return d, nil
}

func (d *deployment) open(ctx context.Context) (err error) {
	if err := d.openDatabase(ctx); err != nil {
		return err
	}
	if d.statements {
		if err := d.countStatements(ctx); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	d.url = &url.URL{Scheme: "http", Host: l.Addr().String()}
	if err := l.Close(); err != nil { // the server listens there, and again after a restart
		return err
	}
	if _, err := d.start(ctx); err != nil {
		return err
	}
	return d.fill(ctx)
}

func (d *deployment) openDatabase(ctx context.Context) (err error) {
	quiet := slog.New(slog.DiscardHandler)
	if d.postgres, err = embedded.Start(ctx, embedded.Options{
		Dir: filepath.Join(d.dir, "database"), Logger: quiet,
	}); err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	if d.db, err = database.Open(ctx, d.postgres.URL(), quiet); err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	return nil
}

func (d *deployment) closeDatabase() error {
	if d.db != nil {
		d.db.Close()
		d.db = nil
	}
	if d.postgres == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := d.postgres.Stop(ctx)
	d.postgres = nil
	return err
}

// fill creates the first user and the template.
func (d *deployment) fill(ctx context.Context) error {
	nameless := sdk.New(d.url, "", sdk.Options{})
	code, err := os.ReadFile(filepath.Join(d.dir, "config", "setup-code"))
	if err != nil {
		return fmt.Errorf("read the setup code: %w", err)
	}
	if _, err := nameless.CreateFirstUser(ctx, sdk.CreateFirstUserRequest{
		Email: "ada@example.com", Username: "ada", Password: password, SetupCode: string(code),
	}); err != nil {
		return fmt.Errorf("create the first user: %w", err)
	}
	session, err := nameless.Login(ctx, sdk.LoginRequest{Email: "ada@example.com", Password: password})
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	d.admin = sdk.New(d.url, secret.Token(session.SessionToken), sdk.Options{})
	stop, err := d.provisioners(ctx, 1, 1)
	if err != nil {
		return err
	}
	defer stop()
	archive, err := echo.Script{}.Archive()
	if err != nil {
		return err
	}
	file, err := d.admin.Upload(ctx, sdk.ContentTypeTar, bytes.NewReader(archive))
	if err != nil {
		return fmt.Errorf("upload the template: %w", err)
	}
	version, err := d.admin.CreateTemplateVersion(ctx, sdk.DefaultOrganization, sdk.CreateTemplateVersionRequest{
		StorageMethod: sdk.StorageFile, FileID: file, Provisioner: sdk.ProvisionerTerraform,
	})
	if err != nil {
		return fmt.Errorf("create the template: %w", err)
	}
	if err := until(ctx, slow, "import the template", func() (bool, error) {
		v, err := d.admin.TemplateVersion(ctx, version.ID)
		if err == nil && v.Job.Status == sdk.JobFailed {
			err = errors.New(v.Job.Error)
		}
		return v.Job.Status == sdk.JobSucceeded, err
	}); err != nil {
		return err
	}
	d.template, err = d.admin.CreateTemplate(ctx, sdk.DefaultOrganization, sdk.CreateTemplateRequest{
		Name: "scale", VersionID: version.ID,
	})
	return err
}

// start starts the server and waits until it answers. It returns when the process began.
func (d *deployment) start(ctx context.Context) (began time.Time, err error) {
	log, err := os.OpenFile(d.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return began, err
	}
	defer log.Close() // the child has its own
	cmd := exec.CommandContext(context.WithoutCancel(ctx), d.coder, "server")
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.dir, log, log
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir, "CODER_CONFIG_DIR=" + filepath.Join(d.dir,
			"config"), "CODER_CACHE_DIRECTORY=" + filepath.Join(d.dir, "cache"),
		"CODER_HTTP_ADDRESS=" + d.url.Host, "CODER_ACCESS_URL=" + d.url.String(), "CODER_PG_CONNECTION_URL=" + d.postgres.URL(),
		"CODER_PROVISIONER_DAEMONS=0", "CODER_PROVISIONER_DAEMON_PSK=" + psk,
		"CODER_API_RATE_LIMIT=0", // one user sends what hundreds would
	}
	for _, name := range []string{"CODER_PPROF_ENABLE", "CODER_PPROF_ADDRESS", "CODER_TERRAFORM_BINARY"} {
		if value, set := os.LookupEnv(name); set {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	began = time.Now()
	if err := cmd.Start(); err != nil {
		return began, err
	}
	d.server = cmd
	return began, until(ctx, slow, "start the server", func() (bool, error) {
		if answer, err := http.Get(d.url.JoinPath("/healthz").String()); err == nil {
			return answer.StatusCode == http.StatusOK, answer.Body.Close()
		}
		return false, nil // it does not listen yet
	})
}

func (d *deployment) log() string { return filepath.Join(d.dir, "server.log") }

// stop makes the server drain and waits for its end.
func (d *deployment) stop() error {
	if d.server == nil {
		return nil
	}
	if err := d.server.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := d.server.Wait()
	d.server = nil
	if err != nil {
		return fmt.Errorf("the server ends with %w", err)
	}
	return nil
}

func (d *deployment) close() error {
	err := errors.Join(d.stop(), d.closeDatabase())
	if d.keep {
		fmt.Fprintln(os.Stderr, "kept", d.dir)
		return err
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}

// complaints returns the number of warnings and errors in the server's log, and the last error.
func (d *deployment) complaints() (warnings, errs int, last string, err error) {
	text, err := os.ReadFile(d.log())
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.Contains(line, " level=WARN "):
			warnings++
		case strings.Contains(line, " level=ERROR "):
			errs++
			last = strings.TrimSpace(line)
		}
	}
	return warnings, errs, last, err
}

// usage is what the deployment has used so far.
type usage struct {
	at       time.Time
	server   time.Duration
	database time.Duration
	load     time.Duration // this process: agents, provisioners, browsers
}

func (d *deployment) usage() (u usage, err error) {
	u.at = time.Now()
	if u.server, err = cpu(d.server.Process.Pid); err != nil {
		return u, err
	}
	if u.load, err = cpu(os.Getpid()); err != nil {
		return u, err
	}
	postmaster, err := d.postmaster()
	if err != nil {
		return u, err
	}
	u.database, err = familyCPU(postmaster)
	return u, err
}

// since returns what was used since an earlier time.
func (u usage) since(earlier usage) (took time.Duration, used usage) {
	return u.at.Sub(earlier.at), usage{
		server: u.server - earlier.server, database: u.database - earlier.database, load: u.load - earlier.load,
	}
}

// postmaster returns the process id of PostgreSQL.
func (d *deployment) postmaster() (int, error) {
	text, err := os.ReadFile(filepath.Join(d.dir, "database", "postgres", "data", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(first)
}

// writes returns how many rows were written so far, by table.
func (d *deployment) writes(ctx context.Context) (map[string]int64, error) {
	rows, err := d.db.Pool.Query(ctx, `SELECT relname, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	written := map[string]int64{}
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			return nil, err
		}
		written[name] = n
	}
	return written, rows.Err()
}

// commits returns the number of transactions so far.
func (d *deployment) commits(ctx context.Context) (n int64, err error) {
	err = d.db.Pool.QueryRow(ctx, `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`).Scan(&n)
	return n, err
}

// workspace creates a workspace and returns its id. Its build waits for a provisioner.
func (d *deployment) workspace(ctx context.Context, client *sdk.Client, name string) (uuid.UUID, error) {
	ws, err := client.CreateWorkspace(ctx, sdk.Me, sdk.CreateWorkspaceRequest{TemplateID: d.template.ID, Name: name})
	if err != nil {
		return uuid.Nil, fmt.Errorf("create workspace %s: %w", name, err)
	}
	return ws.ID, nil
}
