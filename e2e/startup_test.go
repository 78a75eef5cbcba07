package e2e_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
)

// refusal is a server that cannot start, and what its message must contain.
type refusal struct {
	args []string
	// config is the configuration folder: by default one that does not exist.
	config string
	// begun allows new files there: what a start prepares before the disk is full, and the next one uses or removes.
	begun bool
	want  []string
}

// spoiled is what the servers of TestServerRefusesToStart are given.
type spoiled struct {
	d                                     *deployment // which runs
	config, database                      string      // its folder, and the URL of its PostgreSQL
	stranger                              string      // the URL with a wrong password
	taken                                 string      // an address that a program listens at
	cert, key                             string      // good ones
	garbage, openKey, openStates, unknown string      // bad files
}

func newSpoiled(t *testing.T) *spoiled {
	t.Helper()
	s := &spoiled{d: prepare(t, "--provisioner-daemons=0", "--stun-address=off")}
	if err := s.d.start(); err != nil {
		t.Fatal(err)
	}
	s.config = filepath.Join(s.d.dir, "config-admin")
	database, err := embedded.RunningURL(s.config)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	stranger.User = url.UserPassword(stranger.User.Username(), "guess")
	s.database, s.stranger = database, stranger.String()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	s.taken = listener.Addr().String()
	s.cert, s.key = selfSigned(t, s.d.dir)
	keyText, err := os.ReadFile(s.key)
	if err != nil {
		t.Fatal(err)
	}
	stateKey := base64.StdEncoding.EncodeToString(make([]byte, 32)) + "\n"
	s.garbage = s.file(t, "garbage.pem", "garbage", 0o600)
	s.openKey = s.file(t, "open.pem", string(keyText), 0o644)
	s.openStates = s.file(t, "open/state-encryption.key", stateKey, 0o644)
	s.unknown = s.file(t, "unknown.yaml", "networking:\n  accesURL: https://coder.example.com\n", 0o600)
	return s
}

// file returns the path of a new file in a new folder.
func (s *spoiled) file(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(s.d.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// ownDatabase are the arguments of a server with a PostgreSQL that it does not start.
func ownDatabase(url string) []string { return []string{"--postgres-url", url} }

// unreachable servers wait a minute for a database that cannot be reached.
func unreachable() map[string]refusal {
	return map[string]refusal{
		"nothing listens":      {args: ownDatabase("postgres://coder:secret@127.0.0.1:1/coder"), want: []string{"PostgreSQL at 127.0.0.1:1 cannot be reached: dial tcp 127.0.0.1:1: connect: connection refused:", "start it, or correct the PostgreSQL URL"}},
		"no host of that name": {args: ownDatabase("postgres://coder:secret@db.invalid/coder"), want: []string{"PostgreSQL at db.invalid:5432 cannot be reached: lookup db.invalid", "start it, or correct the PostgreSQL URL"}},
	}
}

// addresses are servers that have an address that cannot be listened at.
func (s *spoiled) addresses() map[string]refusal {
	return map[string]refusal{
		"taken HTTP address":    {args: []string{"--http-address", s.taken}, want: []string{"is used by another program", "choose another address with --http-address"}},
		"taken HTTPS address":   {args: []string{"--tls-address", s.taken, "--tls-cert-file", s.cert, "--tls-key-file", s.key}, want: []string{"is used by another program", "choose another address with --tls-address"}},
		"taken metrics address": {args: []string{"--prometheus-enable", "--prometheus-address", s.taken}, want: []string{"is used by another program", "choose another address with --prometheus-address"}},
		"taken pprof address":   {args: []string{"--pprof-enable", "--pprof-address", s.taken}, want: []string{"is used by another program", "choose another address with --pprof-address"}},
		"unknown address":       {args: []string{"--http-address", "192.0.2.1:3000"}, want: []string{"cannot listen on 192.0.2.1:3000", "choose another address with --http-address"}},
	}
}

// certificates are servers that have a certificate or key that cannot be used.
func (s *spoiled) certificates() map[string]refusal {
	return map[string]refusal{
		"certificate without key":     {args: []string{"--tls-address", "127.0.0.1:0", "--tls-cert-file", s.garbage}, want: []string{"1 --tls-cert-file need as many --tls-key-file, not 0"}},
		"bad certificate":             {args: []string{"--tls-address", "127.0.0.1:0", "--tls-cert-file", s.garbage, "--tls-key-file", s.garbage}, want: []string{"cannot use the certificate", "garbage.pem"}},
		"missing certificate":         {args: []string{"--tls-address", "127.0.0.1:0", "--tls-cert-file", "none.pem", "--tls-key-file", "none.pem"}, want: []string{"none.pem: no such file", "name a file that the server's account can read"}},
		"certificate's key is public": {args: []string{"--tls-address", "127.0.0.1:0", "--tls-cert-file", s.cert, "--tls-key-file", s.openKey}, want: []string{s.openKey + " can be read or replaced by every account", "run: chmod 600 " + s.openKey}},
	}
}

// accessURLs are servers that have an access URL that browsers could not use.
func (s *spoiled) accessURLs() map[string]refusal {
	return map[string]refusal{
		"access URL without scheme":   {args: []string{"--access-url", "coder.example.com"}, want: []string{"must start with http:// or https://", "https://coder.example.com"}},
		"access URL of no web server": {args: []string{"--access-url", "ftp://coder.example.com"}, want: []string{"must start with http:// or https://"}},
		"access URL with a path":      {args: []string{"--access-url", "https://example.com/coder"}, want: []string{"must not have a path", "it looks like https://coder.example.com"}},
		"access URL with a query":     {args: []string{"--access-url", "https://example.com?a=b"}, want: []string{"must have only a host and a port after https://"}},
		"access URL without host":     {args: []string{"--access-url", "https://:3000"}, want: []string{"must name a host"}},
		"access URL of no port":       {args: []string{"--access-url", "https://example.com:99999"}, want: []string{"must have a port between 1 and 65535"}},
		"unreadable access URL":       {args: []string{"--access-url", "https://[::1"}, want: []string{"cannot be read: missing ']' in host", "it looks like https://coder.example.com"}},
	}
}

// databases are servers that have a PostgreSQL that refuses them.
func (s *spoiled) databases(t *testing.T) map[string]refusal {
	return map[string]refusal{
		"no PostgreSQL URL":         {args: ownDatabase("mysql://coder@127.0.0.1/coder"), want: []string{"must look like postgres://"}},
		"wrong password":            {args: ownDatabase(s.stranger), want: []string{`refuses the connection: password authentication failed for user "coder"`, "check the user, the password"}},
		"no such database":          {args: ownDatabase(strings.Replace(s.database, "/postgres?", "/nonsense?", 1)), want: []string{`refuses the connection: database "nonsense" does not exist`, "check the user, the password, the database"}},
		"PostgreSQL without TLS":    {args: ownDatabase(strings.Replace(dbtest.OldPostgres(t), "=disable", "=require", 1)), want: []string{"refuses the connection", "server refused TLS", "and sslmode in the PostgreSQL URL"}},
		"PostgreSQL requires TLS":   {args: ownDatabase(dbtest.RefusingPostgres(t, "28000", `no pg_hba.conf entry for host "127.0.0.1", no encryption`)), want: []string{"refuses the connection: no pg_hba.conf entry", "and sslmode in the PostgreSQL URL"}},
		"PostgreSQL is not trusted": {args: ownDatabase(dbtest.UntrustedPostgres(t)), want: []string{"refuses the connection", "failed to verify certificate", "and sslmode in the PostgreSQL URL"}},
		"old PostgreSQL":            {args: ownDatabase(dbtest.OldPostgres(t)), want: []string{"PostgreSQL 9.6 is not supported: version 13 or newer is required", "upgrade it"}},
		"newer schema":              {args: ownDatabase(dbtest.NewerURL(t)), want: []string{"This database belongs to a newer release: its schema has migration 9999", "start the newer release again, or restore a backup"}},
	}
}

// places are servers that have another clock, release, key or folder than they need.
func (s *spoiled) places(t *testing.T) map[string]refusal {
	return map[string]refusal{
		"another clock":          {args: ownDatabase(dbtest.SkewedURL(t, "90 seconds")), want: []string{"This machine's clock and the database's differ by 1m", "Synchronize both clocks, for example with chrony"}},
		"a newer server":         {args: ownDatabase(dbtest.NewerServerURL(t)), want: []string{"The server at http://192.0.2.1:3000 runs version v9.0.0, which does not understand this one", "Upgrade through a release that understands both"}},
		"another state key":      {args: ownDatabase(s.database), begun: true, want: []string{"uses another state-encryption key", "copy that server's file to --state-encryption-key-file"}},
		"bad state key":          {config: filepath.Dir(s.file(t, "badkey/state-encryption.key", "short", 0o600)), want: []string{"state-encryption.key", "openssl rand -base64 32"}},
		"public state key":       {config: filepath.Dir(s.openStates), want: []string{s.openStates + " can be read or replaced by every account", "run: chmod 600 " + s.openStates}},
		"no state key":           {args: []string{"--state-encryption-key-file", "none.key"}, want: []string{"none.key: no such file", "name a file that the server's account can read"}},
		"file for a data folder": {config: filepath.Dir(s.file(t, "nofolder/postgres", "a file", 0o600)), want: []string{"nofolder/postgres cannot be used", "make it writable, or choose another with --global-config"}},
		"file for a folder":      {config: s.garbage, want: []string{"garbage.pem: not a directory", "choose another with --global-config"}},
		"folder that cannot be":  {config: "/proc/codermesh", want: []string{"cannot be used", "choose another with --global-config"}},
		"same folder":            {config: s.config, want: []string{"another server, process", "--global-config"}},
	}
}

// settings are servers that have settings that cannot be read.
func (s *spoiled) settings() map[string]refusal {
	return map[string]refusal{
		"unknown key":      {args: []string{"--config", s.unknown}, want: []string{"unknown.yaml:2: unknown key networking.accesURL: did you mean networking.accessURL?"}},
		"missing file":     {args: []string{"--config", "none.yaml"}, want: []string{"--config: cannot read the file: open none.yaml"}},
		"several mistakes": {args: []string{"--session-duration=x", "--provisioner-daemons=-1", "--tls-min-version=tls10", "--tls-enable", "--replica-url=x"}, want: []string{"4 settings cannot be used", "--session-duration:", "--provisioner-daemons cannot be -1", "--tls-min-version cannot be", "replica URL"}},
	}
}

// TestServerRefusesToStart: a server with settings that cannot work says what to do in one sentence, ends with 1, and changes nothing.
func TestServerRefusesToStart(t *testing.T) {
	t.Parallel()
	s := newSpoiled(t)
	waiting := map[string]*attempt{}
	for name, r := range unreachable() {
		waiting[name] = r.begin(t, s.d)
	}
	for _, group := range []map[string]refusal{s.addresses(), s.certificates(), s.accessURLs(), s.databases(t), s.places(t), s.settings()} {
		for name, r := range group {
			t.Run(name, func(t *testing.T) { r.begin(t, s.d).check() })
		}
	}
	for name, a := range waiting {
		t.Run(name, func(t *testing.T) {
			a.t = t
			a.check()
		})
	}
	if err := s.d.healthy(); err != nil {
		t.Errorf("the server that was running: %v\n%s", err, s.d.logText())
	}
}

// TestServerRefusesModes checks a server whose account may not use its files.
func TestServerRefusesModes(t *testing.T) {
	t.Parallel()
	d := preparePlain(t)
	cert, key := selfSigned(t, d.dir)
	yaml := filepath.Join(d.dir, "settings.yaml")
	states := filepath.Join(d.dir, "closed", "state-encryption.key")
	readOnly := filepath.Join(d.dir, "readonly")
	for _, dir := range []string{filepath.Dir(states), readOnly} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{yaml, states} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own := func(name string) {
		t.Helper()
		if d.account == nil {
			return
		}
		if err := os.Lchown(name, int(d.account.Uid), int(d.account.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{cert: 0o644, key: 0, yaml: 0, states: 0, filepath.Dir(states): 0o700, readOnly: 0o500} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		own(name)
	}
	cases := map[string]refusal{
		"certificate's key": {args: []string{"--tls-address", "127.0.0.1:0", "--tls-cert-file", cert, "--tls-key-file", key}, want: []string{"key.pem: permission denied", "name a file that the server's account can read"}},
		"settings":          {args: []string{"--config", yaml}, want: []string{"--config: cannot read the file: open " + yaml + ": permission denied"}},
		"state key":         {config: filepath.Dir(states), want: []string{"state-encryption.key: permission denied", "name a file that the server's account can read"}},
		"read-only folder":  {config: readOnly, want: []string{"readonly: permission denied", "let the server's account write to it, or choose another with --global-config"}},
	}
	if d.account != nil { // the test can make folders of another account
		foreign, data := filepath.Join(d.dir, "foreign"), filepath.Join(d.dir, "mixed", "postgres", "data")
		for _, dir := range []string{foreign, data} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		own(filepath.Join(d.dir, "mixed"))
		own(filepath.Dir(data))
		cases["another account's folder"] = refusal{config: foreign, want: []string{"foreign: permission denied", "let the server's account write to it, or choose another with --global-config"}}
		cases["another account's database"] = refusal{config: filepath.Join(d.dir, "mixed"), want: []string{"mixed/postgres/data cannot be used", "permission denied", "make it writable, or choose another with --global-config"}}
	}
	for name, r := range cases {
		t.Run(name, func(t *testing.T) { r.begin(t, d).check() })
	}
}

// attempt is a started server that must refuse to run.
type attempt struct {
	refusal
	t      *testing.T
	cmd    *exec.Cmd
	out    *bytes.Buffer
	before map[string]string // the configuration folder
}

// begin starts another server.
func (r refusal) begin(t *testing.T, d *deployment) *attempt {
	t.Helper()
	if r.config == "" {
		r.config = filepath.Join(d.dir, "new", strings.ReplaceAll(t.Name(), "/", "-"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*settle)
	t.Cleanup(cancel)
	a := &attempt{refusal: r, t: t, out: &bytes.Buffer{}, before: contents(t, r.config)}
	args := []string{"server", "--http-address=127.0.0.1:0", "--provisioner-daemons=0", "--stun-address=off", "--global-config", r.config}
	a.cmd = exec.CommandContext(ctx, d.program, append(args, r.args...)...)
	a.cmd.Env, a.cmd.Dir, a.cmd.Stderr = append(d.env("admin"), "CODER_ACCESS_URL="), d.dir, a.out
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: d.account}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return a
}

// check waits for the end of the server, and checks that it ends with one sentence and a hint that contain what is wanted, and that its configuration
// folder is as it was.
func (a *attempt) check() {
	t := a.t
	t.Helper()
	if err := a.cmd.Wait(); a.cmd.ProcessState == nil || a.cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("got %v, want exit code 1\n%s", err, a.out)
	}
	var said []string // without the log
	for line := range strings.Lines(a.out.String()) {
		if !strings.HasPrefix(line, "time=") {
			said = append(said, strings.TrimSuffix(line, "\n"))
		}
	}
	if len(said) != 2 || !strings.HasPrefix(said[0], "error: ") || !strings.HasPrefix(said[1], "Try: ") {
		t.Fatalf("got %q, want one sentence and a hint", a.out)
	}
	for _, part := range a.want {
		if !strings.Contains(strings.ToLower(said[0]), strings.ToLower(part)) {
			t.Errorf("got %q, want %q in it", said[0], part)
		}
	}
	if strings.Contains(a.out.String(), "guess") || strings.Contains(a.out.String(), "secret") {
		t.Errorf("%q contains a password", a.out)
	}
	after := contents(t, a.config)
	maps.DeleteFunc(after, func(path, _ string) bool { return a.begun && a.before[path] == "" })
	if diff := cmp.Diff(a.before, after); diff != "" {
		t.Errorf("%s changed (-before +after):\n%s", a.config, diff)
	}
}

// contents returns the mode, owner and text of everything in a folder, except PostgreSQL's own files, which a running server changes, and the lock that
// names the last server. A missing folder has none.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
				return nil
			}
			return err
		}
		if entry.Name() == "lock" {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		found[path] = fmt.Sprint(info.Mode(), info.Sys().(*syscall.Stat_t).Uid)
		if entry.IsDir() && entry.Name() == "data" {
			return fs.SkipDir
		}
		if entry.Type().IsRegular() {
			text, err := os.ReadFile(path)
			found[path] += fmt.Sprintf(" %q", text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestServerRefusesDisks checks a server whose configuration folder is on a disk that is full or read-only.
func TestServerRefusesDisks(t *testing.T) {
	t.Parallel()
	asRoot(t)
	d := prepare(t)
	for name, tt := range map[string]struct {
		options string
		flags   uintptr
		want    []string
	}{
		"full":      {"size=8m,mode=755", 0, []string{"the disk that holds", "is full"}},
		"read-only": {"size=8m,mode=755", syscall.MS_RDONLY, []string{"cannot be used", "read-only file system", "choose another with --global-config"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := filepath.Join(d.dir, name)
			if err := os.Mkdir(config, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mount("e2e", config, "tmpfs", tt.flags, tt.options); errors.Is(err, syscall.EPERM) {
				t.Skip("this machine does not let root mount")
			} else if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := syscall.Unmount(config, syscall.MNT_DETACH); err != nil {
					t.Errorf("unmount: %v", err)
				}
			}()
			refusal{config: config, begun: true, want: tt.want}.begin(t, d).check()
		})
	}
}
