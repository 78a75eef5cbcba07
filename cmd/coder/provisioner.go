package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/daemon"
	"github.com/codermesh/codermesh/v2/cmd/coder/settings"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/provisionerd"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// provisionerOptions are the flags of `coder provisionerd start`.
type provisionerOptions struct {
	name        string
	psk         string
	key         string
	tags        []string
	org         string
	concurrency int
	once        bool
	cancelGrace time.Duration
	metrics     string // address
	terraform   terraformOptions
	traces      traceOptions
	logs        daemon.Logs
	settings    *settings.Set
}

// provisionerCmds returns the daemon's command under both of its names.
func provisionerCmds() []*cobra.Command {
	named := &cobra.Command{Use: "provisioner"}
	named.AddCommand(provisionerStartCmd())
	daemon := &cobra.Command{
		Use: "provisionerd", Short: "Run a provisioner daemon",
		Example: "  coder provisionerd start --tag environment=on_prem",
	}
	daemon.AddCommand(provisionerStartCmd())
	return []*cobra.Command{named, daemon}
}

func provisionerStartCmd() *cobra.Command {
	var opts provisionerOptions
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Run a provisioner daemon on this machine",
		Long: `Run a provisioner daemon, which connects to the server, joins the mesh, and runs build jobs with Terraform on this machine. It needs no
inbound port. It joins with a pre-shared key, with a key from "coder provisioner keys create", whose tags it takes, or with a user's session:
template admins run shared provisioners, and with --tag scope=user all users can run one for their own workspaces.

The daemon writes what a job produces to a journal on this machine before sending it, so an outage of the server or the network does no harm
for up to the server's --provisioner-grace. If the daemon is killed, the last state that Terraform wrote is kept.

SIGTERM lets running jobs finish and accepts no others. A second SIGTERM interrupts them, and kills those that do not stop.

With --once, the daemon ends when one job has run, whatever its result, and the server has what it produced.

Exit codes: 0 stopped by a signal, or its one job has run, 1 the server refused the daemon, or it could not start.`,
		Example: `  CODER_PROVISIONER_DAEMON_PSK=… coder provisionerd start --url https://coder.example.com --name rack-2
  CODER_PROVISIONER_DAEMON_KEY=… coder provisionerd start --url https://coder.example.com
  coder provisionerd start --tag environment=on_prem --tag data_center=chicago
  coder provisionerd start --tag scope=user
  coder provisionerd start --org east
  coder provisionerd start --concurrency 4 --prometheus-address 127.0.0.1:2112 --log-json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.settings.Load()
			if err := opts.settings.Err(); err != nil {
				return err
			}
			if opts.settings.WriteRequested() {
				return opts.settings.Write(os.Stdout)
			}
			return runProvisioner(cmd, opts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.name, "name", "",
		"name of the daemon, unique in the deployment (default this machine's host name)")
	f.StringVar(&opts.psk, "psk", "",
		"pre-shared key, the server's --provisioner-daemon-psk (prefer the environment variable)")
	f.StringVar(&opts.key, "key", "", "key from coder provisioner keys create (prefer the environment variable)")
	f.StringArrayVarP(&opts.tags, "tag", "t", nil, "tag key=value of the provisioner; may be repeated")
	f.IntVar(&opts.concurrency, "concurrency", 1, "number of jobs to run at a time")
	f.BoolVar(&opts.once, "once", false, "run one job and end, for machines or pods that are made for each job")
	f.DurationVar(&opts.cancelGrace, "cancel-grace", provisionerd.DefaultStopGrace,
		"how long a canceled job may take to stop before it is killed")
	f.StringVar(&opts.metrics, "prometheus-address", "",
		"address to serve Prometheus metrics on, at /metrics, or unix:PATH; empty for none")
	f.StringVarP(&opts.org, "org", "O", "",
		"name or id of the organization whose jobs to run (default the key's, or else the default one)")
	flags.SetEnv(f.Lookup("org"), "CODER_ORGANIZATION")
	flags.SetEnv(f.Lookup("tag"), "CODER_PROVISIONERD_TAGS", "CODER_PROVISIONER_DAEMON_TAG")
	opts.terraform.flags(f)
	opts.traces.flags(f)
	opts.logs.Flags(f)
	flags.SetEnvPrefix(cmd, "CODER_PROVISIONER_DAEMON_")
	opts.settings = settings.New(cmd, withJobKeys(provisionerKeys), "CODER_PROVISIONER_DAEMON_CONFIG_PATH")
	for _, name := range []string{"poll-interval", "poll-jitter"} { // scripts pass them
		f.Duration(name, 0, "has no effect: the server sends jobs as they come")
		f.Lookup(name).Hidden = true
	}
	return cli.Daemon(cmd)
}

func runProvisioner(cmd *cobra.Command, opts provisionerOptions) (err error) {
	ctx := cmd.Context()
	opts.logs.Verbose = cli.Verbose(cmd)
	log := opts.logs.Logger(os.Stderr)
	for _, warning := range opts.settings.Warnings() {
		log.Warn("suspicious setting", "reason", warning)
	}
	defer daemon.BoundMemory().Stop()
	if err := sandbox.Undumpable(); err != nil {
		return err
	}
	if opts.concurrency < 1 || opts.concurrency > maxConcurrency {
		return fault.New(fault.Invalid, "--concurrency cannot be %d: it must be between 1 and %d", opts.concurrency,
			maxConcurrency)
	}
	if opts.once && opts.concurrency != 1 {
		return fault.New(fault.Invalid, "--once runs one job: it cannot be combined with --concurrency %d",
			opts.concurrency)
	}
	if opts.cancelGrace <= 0 {
		return fault.New(fault.Invalid, "--cancel-grace cannot be %s", opts.cancelGrace)
	}
	server, err := cli.FindServer(ctx, cmd)
	if err != nil {
		return err
	}
	if opts.name == "" {
		if opts.name, err = os.Hostname(); err != nil {
			return fault.New(fault.Invalid, "this machine has no host name: name the daemon with --name")
		}
	}
	if strings.ContainsRune(opts.name, filepath.Separator) || opts.name == "." || opts.name == ".." {
		return fault.New(fault.Invalid, "the name %q cannot be used, since it also names a folder", opts.name)
	}
	configDir := cli.ConfigDir(cmd)
	if configDir == "" {
		return errNoConfigDir
	}
	if err := opts.terraform.fillCacheDir(); err != nil {
		return err
	}
	opts.terraform.hide(cmd, configDir, "")
	state := filepath.Join(configDir, "provisionerd", opts.name)
	lock, err := provisionerd.LockFolder(ctx, state, isSuccessor())
	if err != nil && isSuccessor() {
		return nil // a new daemon delivers
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	instance, err := instanceOf(state)
	if err != nil {
		return err
	}
	header, err := opts.header(server, instance)
	if err != nil {
		return err
	}
	second, forget := secondSignal()
	defer forget()
	run := provisionerd.RunOptions{
		Options: provisionerd.Options{
			Logger: log, Name: opts.name, StateDir: filepath.Join(state, "journal"), Slots: opts.concurrency,
			StopGrace: opts.cancelGrace, Successor: isSuccessor(),
			Once: opts.once && !isSuccessor(),
		},
		URL:       server.URL,
		Header:    func(context.Context) (http.Header, error) { return header.Clone(), nil },
		TLS:       server.TLS,
		RelayOnly: server.RelayOnly,
		Interrupt: second,
		OnStarted: func() { log.Info("provisioner started", "peer", opts.name, "url", server.URL.String()) },
	}
	warm := opts.concurrency
	if isSuccessor() {
		if left, err := provisionerd.Undelivered(run.StateDir); err != nil || !left {
			return err
		}
		log.Warn("provisioner was killed, delivering its results", "peer", opts.name)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, successorGrace)
		defer cancel()
		warm = -1
	}
	if opts.metrics != "" && !isSuccessor() {
		metrics, err := daemon.ServeMetrics(opts.metrics, log)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, metrics.Close()) }()
		run.Metrics, opts.terraform.metrics = metrics.Registry, metrics.Registry
	}
	if !isSuccessor() {
		tracers, stopTracing, err := opts.traces.tracers(ctx, log, "codermesh-provisioner")
		if err != nil {
			return err
		}
		defer stopTracing()
		run.Tracer = tracers
	}
	executors, err := newExecutors(ctx, log, opts.terraform, filepath.Join(state, "run"), 1, warm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, executors.close()) }()
	run.Executor = executors.each[0]
	if !isSuccessor() {
		successor, err := startSuccessor()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, successor.dismiss()) }()
	}
	return provisionerd.Run(ctx, run)
}

// maxConcurrency is the maximum number of jobs that the server gives to one daemon.
const maxConcurrency = 64

// instanceOf returns the id that distinguishes this daemon from others with its name. It is stored in the daemon's
// folder.
func instanceOf(dir string) (string, error) {
	name := filepath.Join(dir, "instance")
	text, err := os.ReadFile(name)
	if id, perr := uuid.ParseBytes(bytes.TrimSpace(text)); err == nil && perr == nil {
		return id.String(), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read instance: %w", err)
	}
	id := uuid.NewString()
	if err := os.WriteFile(name, []byte(id+"\n"), 0o600); err != nil {
		return "", fault.New(fault.Unavailable, "cannot use the provisioner's folder: %w", err)
	}
	return id, nil
}

// header returns the headers that name the daemon and carry its credential.
func (opts provisionerOptions) header(server cli.Server, instance string) (http.Header, error) {
	tags := url.Values{}
	for _, tag := range opts.tags {
		key, value, ok := strings.Cut(tag, "=")
		if !ok || key == "" {
			return nil, fault.New(fault.Invalid, "the tag %q is not key=value", tag).
				WithDetail("For example: --tag environment=on_prem")
		}
		if tags.Has(key) {
			return nil, fault.New(fault.Invalid, "the tag %q is given twice", key)
		}
		tags.Set(key, value)
	}
	switch {
	case opts.key != "" && opts.psk != "":
		return nil, fault.New(fault.Invalid, "--key and --psk cannot be combined")
	case opts.key != "" && len(tags) > 0:
		return nil, fault.New(fault.Invalid, "--tag cannot be combined with --key, which has tags of its own").
			WithDetail("Make a key with other tags: coder provisioner keys create NAME --tag %s",
				shell.Word(opts.tags[0]))
	}
	header := server.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set(sdk.ProvisionerNameHeader, opts.name)
	header.Set(sdk.ProvisionerTagsHeader, tags.Encode())
	header.Set(sdk.ProvisionerInstanceHeader, instance)
	if opts.org != "" {
		header.Set(sdk.ProvisionerOrganizationHeader, opts.org)
	}
	switch {
	case opts.key != "":
		header.Set(sdk.ProvisionerKeyHeader, opts.key)
	case opts.psk != "":
		header.Set(sdk.ProvisionerPSKHeader, opts.psk)
	case server.Token != "":
		header.Set(sdk.SessionHeader, server.Token.Reveal())
	default:
		return nil, fault.New(fault.Unauthenticated, "the provisioner has no credential").
			WithDetail("Give --key or --psk, or sign in: coder login %s", shell.Word(server.URL.String()))
	}
	return header, nil
}
