package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/cmd/coder/cli"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/provisionerd"
	"github.com/codermesh/codermesh/provisionerd/terraform"
)

// provisionerOptions are what the flags of `coder provisionerd start` say.
type provisionerOptions struct {
	name      string
	psk       string
	tags      []string
	terraform terraformOptions
	logs      logOptions
}

// provisionerCmds are the daemon's command under both of its names.
func provisionerCmds() []*cobra.Command {
	named := &cobra.Command{Use: "provisioner"}
	named.AddCommand(provisionerStartCmd())
	daemon := &cobra.Command{Use: "provisionerd", Short: "Run a provisioner daemon", Example: "  coder provisionerd start --tag environment=on_prem"}
	daemon.AddCommand(provisionerStartCmd())
	return []*cobra.Command{named, daemon}
}

func provisionerStartCmd() *cobra.Command {
	var o provisionerOptions
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Run a provisioner daemon on this machine",
		Long: `Run a provisioner daemon: it dials out to the server, joins the mesh, and runs build jobs with Terraform on this machine. It needs no
inbound port. It joins with a pre-shared key, or with the session of a user who may run provisioners.

SIGTERM lets the running job finish and takes no other; a second one interrupts it.

Exit codes: 0 stopped by a signal, 1 the server refused the daemon or it could not start.`,
		Example: `  CODER_PROVISIONER_DAEMON_PSK=… coder provisionerd start --url https://coder.example.com --name rack-2
  coder provisionerd start --tag environment=on_prem --tag data_center=chicago`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runProvisioner(cmd, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "name of the daemon, unique in the deployment (default: this machine's)")
	f.StringVar(&o.psk, "psk", "", "pre-shared key, as the server's --provisioner-daemon-psk (better given by the environment)")
	f.StringArrayVarP(&o.tags, "tag", "t", nil, "tag key=value; may be repeated")
	o.terraform.flags(f)
	o.logs.flags(f)
	cli.SetEnvPrefix(cmd, "CODER_PROVISIONER_DAEMON_")
	return cli.Daemon(cmd)
}

func runProvisioner(cmd *cobra.Command, o provisionerOptions) (err error) {
	ctx := cmd.Context()
	o.logs.verbose = cli.Verbose(cmd)
	log := o.logs.logger(os.Stderr)
	defer boundServerMemory().Stop()
	if err := terraform.Undumpable(); err != nil {
		return err
	}
	server, err := cli.FindServer(ctx, cmd)
	if err != nil {
		return err
	}
	if o.name == "" {
		if o.name, err = os.Hostname(); err != nil {
			return fault.New(fault.Invalid, "This machine has no name: give the daemon one with --name")
		}
	}
	header, err := o.header(server)
	if err != nil {
		return err
	}
	configDir := cli.ConfigDir(cmd)
	if configDir == "" {
		return errNoConfigDir
	}
	if err := o.terraform.fillCacheDir(); err != nil {
		return err
	}
	state := filepath.Join(configDir, "provisionerd", o.name)
	executors, err := newExecutors(ctx, log, o.terraform, filepath.Join(state, "run"), 1, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, executors.close()) }()
	return provisionerd.Run(ctx, provisionerd.RunOptions{
		Options:   provisionerd.Options{Logger: log, Name: o.name, StateDir: filepath.Join(state, "journal"), Executor: executors.each[0]},
		URL:       server.URL,
		Header:    func(context.Context) (http.Header, error) { return header.Clone(), nil },
		TLS:       server.TLS,
		RelayOnly: server.RelayOnly,
		Interrupt: secondSignal(ctx),
		OnStarted: func() { log.Info("provisioner started", "peer", o.name, "url", server.URL.String()) },
	})
}

// secondSignal is closed by the first signal after ctx, which the signal before it has ended.
func secondSignal(ctx context.Context) <-chan struct{} {
	interrupt := make(chan struct{})
	context.AfterFunc(ctx, func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		<-signals
		close(interrupt)
	})
	return interrupt
}

// header names the daemon and carries its credential.
func (o provisionerOptions) header(server cli.Server) (http.Header, error) {
	tags := url.Values{}
	for _, tag := range o.tags {
		key, value, ok := strings.Cut(tag, "=")
		if !ok || key == "" {
			return nil, fault.New(fault.Invalid, "The tag %q is not key=value", tag).WithDetail("For example: --tag environment=on_prem")
		}
		if tags.Has(key) {
			return nil, fault.New(fault.Invalid, "The tag %q is given twice", key)
		}
		tags.Set(key, value)
	}
	header := server.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set(sdk.ProvisionerNameHeader, o.name)
	header.Set(sdk.ProvisionerTagsHeader, tags.Encode())
	switch {
	case o.psk != "":
		header.Set(sdk.ProvisionerPSKHeader, o.psk)
	case server.Token != "":
		header.Set(sdk.SessionHeader, server.Token.Reveal())
	default:
		return nil, fault.New(fault.Unauthenticated, "The provisioner has no credential").
			WithDetail("Give --psk, or sign in: coder login %s", server.URL)
	}
	return header, nil
}
