package main

import (
	"strconv"

	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/ask"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
)

// jobLimitFlags adds the flags that limit a job.
func jobLimitFlags(f *pflag.FlagSet, l *host.JobLimits) {
	*l = host.DefaultJobLimits()
	f.Var((*bytesValue)(&l.Memory), "provisioner-job-memory",
		"memory limit of a job, such as 4GiB (default half of this machine's); 0 for no limit")
	f.Uint64Var(&l.Processes, "provisioner-job-processes", l.Processes,
		"maximum number of processes and threads of a job; 0 for no limit")
	f.Float64Var(&l.CPUs, "provisioner-job-cpus", l.CPUs,
		"maximum number of CPUs of a job, such as 1.5; 0 for no limit")
	f.Var((*bytesValue)(&l.Disk), "provisioner-job-disk",
		"disk space limit of a job's folders, such as 2GiB; 0 for no limit")
	f.DurationVar(&l.Timeout, "provisioner-job-timeout", l.Timeout, "time limit of a job; 0 for no limit")
	for name, variable := range map[string]string{
		"provisioner-job-memory": "CODER_PROVISIONER_JOB_MEMORY", "provisioner-job-processes": "CODER_PROVISIONER_JOB_PROCESSES",
		"provisioner-job-cpus": "CODER_PROVISIONER_JOB_CPUS", "provisioner-job-disk": "CODER_PROVISIONER_JOB_DISK",
		"provisioner-job-timeout": "CODER_PROVISIONER_JOB_TIMEOUT",
	} {
		flags.SetEnv(f.Lookup(name), variable)
	}
	f.Lookup("provisioner-job-memory").DefValue = "" // it depends on the machine
}

// workspaceLimitFlags are the flags that bound workspaces that are processes of this host.
func workspaceLimitFlags(f *pflag.FlagSet, l *host.WorkspaceLimits) {
	*l = host.DefaultWorkspaceLimits()
	f.Var((*bytesValue)(&l.Memory), "provisioner-workspace-memory", "memory limit of a workspace that is a process of this host, such as 4GiB (default half of this machine's); 0 for no limit")
	f.Uint64Var(&l.Processes, "provisioner-workspace-processes", l.Processes,
		"maximum number of processes and threads of such a workspace; 0 for no limit")
	f.Var((*bytesValue)(&l.Temporary), "provisioner-workspace-tmp",
		"size limit of each temporary folder of such a workspace, such as 2GiB; 0 for no limit")
	for name, variable := range map[string]string{
		"provisioner-workspace-memory": "CODER_PROVISIONER_WORKSPACE_MEMORY", "provisioner-workspace-processes": "CODER_PROVISIONER_WORKSPACE_PROCESSES",
		"provisioner-workspace-tmp": "CODER_PROVISIONER_WORKSPACE_TMP",
	} {
		flags.SetEnv(f.Lookup(name), variable)
	}
	f.Lookup("provisioner-workspace-memory").DefValue = "" // it depends on the machine
}

// bytesValue is a number of bytes as a flag: 4GiB, 512MiB, 1000.
type bytesValue uint64

// Type implements pflag.Value.
func (*bytesValue) Type() string { return "bytes" }

// String implements pflag.Value.
func (b *bytesValue) String() string {
	for _, unit := range byteUnits {
		if n := uint64(*b); n >= unit.size && n%unit.size == 0 {
			return strconv.FormatUint(n/unit.size, 10) + unit.name
		}
	}
	return strconv.FormatUint(uint64(*b), 10)
}

// Set implements pflag.Value.
func (b *bytesValue) Set(text string) error {
	n, err := ask.ParseSize(text)
	if err != nil {
		return err
	}
	*b = bytesValue(n)
	return nil
}

var byteUnits = []struct {
	name string
	size uint64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}
