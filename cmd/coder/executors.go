package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/launcher"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/launcher/packed"
)

// workerCommand is the command with which the program starts itself for the provider of a job. Others are
// launcher.Main's.
const workerCommand = "provider-worker"

// terraformOptions are the flags of programs that run jobs.
type terraformOptions struct {
	binary    string
	install   bool
	cacheDir  string
	isolation string
	docker    string
	limits    host.JobLimits
	spaces    host.WorkspaceLimits
	env       []string
	readable  []string
	files     []string // NAME=PATH
	hidden    []string // files and folders, see hide
	// mayRunUnconfined is called before each job that this machine cannot confine; its error fails the job.
	mayRunUnconfined func(context.Context) error
	metrics          prometheus.Registerer // of a single executor; nil registers none
}

func (opts *terraformOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&opts.binary, "terraform", "",
		"path of terraform or tofu, 1.9 or newer (default the first of both on PATH)")
	f.BoolVar(&opts.install, "install-terraform", false, "download Terraform if this machine has none")
	f.StringVar(&opts.cacheDir, "cache-dir", "", "cache folder, which may be deleted (default $CACHE_DIRECTORY, else /var/cache/codermesh for root, else in the user's cache folder)")
	f.StringVar(&opts.isolation, "provisioner-isolation", "auto", `confinement of templates: "auto" confines them, or refuses to run them where it cannot; "none" gives them the rights of this account`)
	f.StringVar(&opts.docker, "provisioner-docker-socket", "/var/run/docker.sock",
		"Docker socket for templates that use a docker provider; empty for none")
	jobLimitFlags(f, &opts.limits)
	workspaceLimitFlags(f, &opts.spaces)
	f.StringArrayVar(&opts.env, "provisioner-env", nil,
		"name of an environment variable that templates may see; may be repeated")
	f.StringArrayVar(&opts.readable, "provisioner-read", nil,
		"file or folder of this machine that templates and workspaces may read; may be repeated")
	f.StringArrayVar(&opts.files, "provisioner-file", nil,
		"NAME=PATH: file that templates get a copy of, found by the variable NAME, or as NAME below HOME if it is a path such as .kube/config; may be repeated")
	flags.SetEnv(f.Lookup("provisioner-file"), "CODER_PROVISIONER_FILE")
	flags.SetEnv(f.Lookup("terraform"), "CODER_TERRAFORM_BINARY")
	flags.SetEnv(f.Lookup("install-terraform"), "CODER_INSTALL_TERRAFORM")
	flags.SetEnv(f.Lookup("cache-dir"), "CODER_CACHE_DIRECTORY", "CACHE_DIRECTORY")
	flags.SetEnv(f.Lookup("provisioner-isolation"), "CODER_PROVISIONER_ISOLATION")
	flags.SetEnv(f.Lookup("provisioner-docker-socket"), "CODER_PROVISIONER_DOCKER_SOCKET")
	flags.AllowEmpty(f.Lookup("provisioner-docker-socket"))
	flags.SetEnv(f.Lookup("provisioner-env"), "CODER_PROVISIONER_ENV")
	flags.SetEnv(f.Lookup("provisioner-read"), "CODER_PROVISIONER_READ")
}

// errNoConfigDir reports a missing configuration folder to daemons, which must store data.
var errNoConfigDir = fault.New(fault.Invalid,
	"this account has no configuration folder: set --global-config or CODER_CONFIG_DIR")

// fillCacheDir sets the default cache folder.
func (opts *terraformOptions) fillCacheDir() error {
	if opts.cacheDir != "" {
		return nil
	}
	if os.Geteuid() == 0 {
		opts.cacheDir = "/var/cache/codermesh" // the accounts of jobs cannot enter root's home
		return nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find the cache folder (set --cache-dir): %w", err)
	}
	opts.cacheDir = filepath.Join(base, "codermesh")
	return nil
}

// executor returns the options of an executor with its own folder.
func (opts *terraformOptions) executor(log *slog.Logger, runDir string) (terraform.Options, error) {
	exe, err := os.Executable()
	if err != nil {
		return terraform.Options{}, fmt.Errorf("find own program: %w", err)
	}
	files, err := opts.jobFiles()
	if err != nil {
		return terraform.Options{}, err
	}
	return terraform.Options{
		Logger:    log,
		Binary:    opts.binary,
		Install:   opts.install,
		CacheDir:  opts.cacheDir,
		RunDir:    runDir,
		Worker:    []string{exe, workerCommand},
		Launcher:  packed.Unpack,
		Isolation: opts.isolation, DockerSocket: opts.docker,
		JobLimits: opts.limits, WorkspaceLimits: opts.spaces, MayRunUnconfined: opts.mayRunUnconfined,
		ExtraEnv: opts.env, Readable: opts.readable, Files: files, Hidden: opts.hidden,
		Metrics: opts.metrics,
	}, nil
}

// jobFiles parses --provisioner-file.
func (opts *terraformOptions) jobFiles() (files []host.JobFile, err error) {
	for _, text := range opts.files {
		name, path, ok := strings.Cut(text, "=")
		if !ok || name == "" || path == "" {
			return nil, fault.New(fault.Invalid, "--provisioner-file %s must have the form NAME=PATH", text)
		}
		files = append(files, host.JobFile{Name: name, Path: path})
	}
	return files, nil
}

// executors run the jobs of a process, one for each daemon.
type executors struct {
	each     []job.Executor
	first    *terraform.Executor // nil if there are none
	concerns []string            // about the confinement of templates
	outdated string              // what an old Terraform cannot do, and what to do about it; "" if it is none
}

// newExecutors returns n executors with the given number of slots; with -1 nothing is kept warm. runDir is part of this
// process's data, where a restarted process finds the remains of a killed one.
func newExecutors(
	ctx context.Context, log *slog.Logger, opts terraformOptions, runDir string, n, slots int,
) (*executors, error) {
	made := make([]*terraform.Executor, n)
	prepare := func(i int) error {
		executorOpts, err := opts.executor(log, filepath.Join(runDir, fmt.Sprint(i)))
		if err != nil {
			return err
		}
		executorOpts.Slots = slots
		if i > 0 {
			executorOpts.Like = made[0]
		}
		made[i], err = terraform.New(ctx, executorOpts)
		return err
	}
	// The first finds Terraform, or downloads it, and tries what confines it.
	var err error
	if n > 0 {
		err = prepare(0)
	}
	if err == nil {
		var others errgroup.Group
		for i := 1; i < n; i++ {
			others.Go(func() error { return prepare(i) })
		}
		err = others.Wait()
	}
	var all executors
	for _, e := range made {
		if e != nil {
			all.each = append(all.each, e)
		}
	}
	if err != nil {
		return nil, errors.Join(err, all.close())
	}
	if n > 0 {
		all.first = made[0]
		made[0].Announce()
		all.concerns, all.outdated = made[0].Concerns(), made[0].Outdated()
	}
	return &all, nil
}

func (e *executors) close() error {
	var errs []error
	for _, each := range e.each {
		errs = append(errs, each.Close())
	}
	return errors.Join(errs...)
}

// jobProcess runs the program as one of a job's processes, if its arguments request that. main calls it first, since
// every build waits for it.
func jobProcess(args []string) (is bool, err error) {
	if len(args) > 1 && args[1] == workerCommand {
		return true, host.ServeProvider(context.Background(), os.Stdin, os.Stdout)
	}
	return launcher.Main(args)
}
