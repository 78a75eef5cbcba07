package diagnose

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func supportCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "support", Short: "Collect diagnostics for support", Example: `  coder support bundle dev --yes`}
	cmd.AddCommand(supportBundleCmd(g))
	return cmd
}

func supportBundleCmd(g *global.Flags) *cobra.Command {
	var file string
	var yes bool
	cmd := &cobra.Command{
		Use:   "bundle [WORKSPACE]",
		Short: "Create a support bundle",
		Long: `Write a zip file with diagnostics: the findings of "coder doctor", a network report, versions, settings and, as far as you may see them,
the deployment's health, servers, participants of the mesh, provisioners and failed jobs. For a workspace it adds the workspace's state, and
the log and timings of its last build and its agents' logs.

Session tokens, passwords, keys, credentials in URLs, and the values of agents' environment variables are removed. A workspace's logs contain whatever its scripts printed. The command
lists the files and sends nothing: review them before you share them.`,
		Example: `  coder support bundle
  coder support bundle dev --output-file /tmp/dev.zip --yes`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				file = "coder-support-" + time.Now().Format("20060102-150405") + ".zip"
			}
			workspace := ""
			if len(args) > 0 {
				workspace = args[0]
			}
			return runBundle(cmd.Context(), g, workspace, file, yes)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "output-file", "O", "", "path of the new file (default coder-support-<time>.zip)")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

func runBundle(ctx context.Context, g *global.Flags, workspace, file string, yes bool) error {
	if !yes {
		ok, err := g.Streams().Confirm(ctx,
			"Collect diagnostics of this machine's network, the server and the workspace in "+file+"?", true)
		if err != nil {
			return exit.Try(err, "coder support bundle --yes")
		}
		if !ok {
			return &exit.Error{Code: 1}
		}
	}
	b := &bundle{app: g, files: map[string][]byte{}}
	b.gather(ctx, workspace)
	if err := b.write(file); err != nil {
		return err
	}
	fmt.Fprintf(g.Streams().Err, "Wrote %s with these files. Nothing was sent: review them before you share them.\n",
		file)
	for _, name := range b.names() {
		fmt.Fprintf(g.Streams().Err, "  %-44s %7d bytes\n", name, len(b.files[name]))
	}
	return nil
}

// bundle is the content of a support bundle.
type bundle struct {
	app   *global.Flags
	files map[string][]byte
	size  int // bytes of what the server answered, at most maxBundle
}

// add adds a value as JSON, or its error.
func (b *bundle) add(name string, value any, err error) {
	if err != nil {
		b.addError(name, err)
		return
	}
	data, err := json.MarshalIndent(value, "", "  ")
	if err == nil && b.size+len(data) > maxBundle {
		err = fmt.Errorf("the answer of %d bytes was left out: the bundle would have more than %d MiB", len(data),
			maxBundle>>20)
	}
	if err != nil {
		b.addError(name, err)
		return
	}
	b.size += len(data)
	b.files[name+".json"] = append(data, '\n')
}

func (b *bundle) addError(name string, err error) {
	text := err.Error()
	b.files[name+".error.txt"] = []byte(text[:min(len(text), maxError)] + "\n")
}

const (
	// supportTimeout bounds each of the server's answers.
	supportTimeout = 15 * time.Second
	// failedJobs is how many of the newest failed jobs of each organization a bundle lists.
	failedJobs = 50
	// maxThings is how many organizations, or agents, a bundle asks about.
	maxThings = 100
	// maxError bounds the text of one error, which a server may have written, in bytes.
	maxError = 4 << 10
	// maxBundle bounds what a bundle holds, in bytes before compression.
	maxBundle = 128 << 20
)

// ask adds the server's answer.
func ask[T any](ctx context.Context, b *bundle, name string, question func(context.Context) (T, error)) T {
	limited, cancel := context.WithTimeout(ctx, supportTimeout)
	defer cancel()
	answer, err := question(limited)
	b.add(name, answer, err)
	return answer
}

func (b *bundle) gather(ctx context.Context, workspace string) {
	b.add("program", map[string]any{
		"version": buildinfo.Version(), "revision": buildinfo.Revision(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
		"time": time.Now(),
	}, nil)
	b.add("environment", environment(os.Environ()), nil)
	examined, cancel := context.WithTimeout(ctx, doctorTimeout)
	b.add("doctor", examine(examined, b.app), nil)
	cancel()
	client, err := b.app.Client(ctx)
	if err != nil {
		b.add("server/build", nil, err)
		return
	}
	ask(ctx, b, "network", func(ctx context.Context) (any, error) { return netcheck(ctx, b.app, client) })
	ask(ctx, b, "server/build", client.BuildInfo)
	ask(ctx, b, "server/health", client.Health)
	ask(ctx, b, "server/config", client.DeploymentConfig)
	ask(ctx, b, "server/stats", client.DeploymentStats)
	ask(ctx, b, "server/servers", client.Replicas)
	ask(ctx, b, "server/mesh", client.MeshPeers)
	b.gatherOrganizations(ctx, client)
	if workspace == "" {
		return
	}
	name, err := target.ParseName(workspace)
	if err != nil {
		b.add("workspace/workspace", nil, err)
		return
	}
	ws := ask(ctx, b, "workspace/workspace", func(ctx context.Context) (sdk.Workspace, error) {
		ws, err := client.WorkspaceByName(ctx, name.Owner, name.Name)
		return withoutValues(ws), err
	})
	if ws.ID == uuid.Nil {
		return // the workspace does not exist
	}
	ask(ctx, b, "workspace/build-log",
		func(ctx context.Context) ([]sdk.JobLog, error) { return client.BuildLogs(ctx, ws.LatestBuild.ID, 0) })
	ask(ctx, b, "workspace/build-timings", func(ctx context.Context) (sdk.BuildTimings, error) {
		return client.BuildTimings(ctx, ws.LatestBuild.ID)
	})
	for i, agent := range bounded(ws.LatestBuild.Agents()) {
		ask(ctx, b, "workspace/agent-"+part(agent.Name, i)+"-log", func(ctx context.Context) ([]sdk.AgentLog, error) {
			return client.AgentLogs(ctx, agent.ID, 0)
		})
	}
}

func (b *bundle) gatherOrganizations(ctx context.Context, client *sdk.Client) {
	for i, o := range bounded(ask(ctx, b, "server/organizations", client.Organizations)) {
		folder := "organization/" + part(o.Name, i) + "/"
		ask(ctx, b, folder+"provisioners", func(ctx context.Context) ([]sdk.ProvisionerDaemon, error) {
			return client.ProvisionerDaemons(ctx, o.ID.String())
		})
		ask(ctx, b, folder+"failed-jobs", func(ctx context.Context) ([]sdk.ProvisionerJob, error) {
			return client.ProvisionerJobs(ctx, o.ID.String(),
				sdk.JobsQuery{Limit: failedJobs, Statuses: []sdk.JobStatus{sdk.JobFailed}})
		})
	}
}

// bounded returns the first things of a server's list: a bundle asks for each of them.
func bounded[T any](list []T) []T { return list[:min(len(list), maxThings)] }

var plainName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// part returns a name that a server chose as a part of a file's name. A bundle unpacks into its own folder on every
// system, so a name with anything but letters, digits, - and _ becomes the thing's number.
func part(name string, number int) string {
	if plainName().MatchString(name) {
		return name
	}
	return fmt.Sprintf("number-%d", number+1)
}

// withoutValues removes from a workspace what templates fill with secrets that have no form by which redact could find
// them: the values of its agents' environment, the text of scripts, and the commands and addresses of apps.
func withoutValues(ws sdk.Workspace) sdk.Workspace {
	for _, resource := range ws.LatestBuild.Resources {
		for _, agent := range resource.Agents {
			for name := range agent.EnvironmentVariables {
				agent.EnvironmentVariables[name] = redacted
			}
			for i := range agent.Scripts {
				agent.Scripts[i].Script = redacted
			}
			for i := range agent.Apps {
				agent.Apps[i].Command, agent.Apps[i].URL = redacted, redacted
			}
		}
	}
	return ws
}

// environment returns the variables that settings are read from, without secrets in their values.
func environment(all []string) map[string]string {
	kept := map[string]string{}
	for _, pair := range all {
		name, value, _ := strings.Cut(pair, "=")
		upper := strings.ToUpper(name)
		if !strings.HasPrefix(upper, "CODER_") && !slices.Contains([]string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "LANG", "TERM", "SHELL"}, upper) {
			continue
		}
		if secretName().MatchString(upper) && value != "" {
			value = redacted
		}
		kept[name] = value
	}
	return kept
}

const redacted = "[taken out]"

var (
	secretName = lazyregexp.New(`(?i)(TOKEN|SECRET|PASSWORD|PASSWD|KEY|PSK|HEADER|PG_CONNECTION_URL|CREDENTIAL)`)
	// secretPatterns match secrets by their form, wherever they occur. The text in parentheses is kept.
	secretPatterns = []func() *regexp.Regexp{
		lazyregexp.New(`()\b[A-Za-z0-9]{10}-[A-Za-z0-9]{22}\b`),                                             // session tokens
		lazyregexp.New(`([a-z][a-z0-9+.-]*://)[^/\s:@"]*:[^/\s@"]*@`),                                       // user:password@ in URLs
		lazyregexp.New(`(?i)((?:token|secret|password|passwd|api_?key|psk)["']?\s*[:=]\s*["']?)[^\s"',}]+`), // assignments
		lazyregexp.New(`(?i)(bearer\s+)[A-Za-z0-9._~+/-]+=*`),
		lazyregexp.New(`()privkey:[0-9a-f]+`),
		lazyregexp.New(`(?s)()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`),
		lazyregexp.New(`(?s)()-----BEGIN [A-Z ]*PRIVATE KEY-----\\n.*?-----END [A-Z ]*PRIVATE KEY-----`), // in JSON
	}
)

// redact removes secrets: known ones by value, others by their form.
func redact(data []byte, known []string) []byte {
	for _, value := range known {
		if len(value) >= 8 { // shorter values are ordinary words
			data = bytes.ReplaceAll(data, []byte(value), []byte(redacted))
		}
	}
	for _, pattern := range secretPatterns {
		data = pattern().ReplaceAll(data, []byte("${1}"+redacted))
	}
	return data
}

// known returns the secrets that this program has.
func (b *bundle) known() []string {
	var values []string
	if token, err := b.app.SessionToken(); err == nil {
		values = append(values, token.Reveal())
	}
	for _, header := range b.app.Headers {
		if _, value, ok := strings.Cut(header, "="); ok {
			values = append(values, value)
		}
	}
	for _, pair := range os.Environ() {
		if name, value, ok := strings.Cut(pair, "="); ok && secretName().MatchString(name) {
			values = append(values, value)
		}
	}
	return values
}

func (b *bundle) names() []string { return slices.Sorted(maps.Keys(b.files)) }

// write creates the zip file, which only its owner can read.
func (b *bundle) write(file string) error {
	var packed bytes.Buffer
	w := zip.NewWriter(&packed)
	known := b.known()
	for _, name := range b.names() {
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: time.Now()})
		if err == nil {
			_, err = f.Write(redact(b.files[name], known))
		}
		if err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return exit.Try(fault.New(fault.Conflict, "%s exists", file), "coder support bundle --output-file OTHER.zip")
	}
	if err != nil {
		return fault.New(fault.Invalid, "cannot create the bundle: %w", err)
	}
	_, err = out.Write(packed.Bytes())
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
