//go:build unix

package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/disk"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// settings are passed on the command line, so that they follow the program's release rather than the data folder's age.
// They make PostgreSQL reachable only through its folder, and quiet. Its memory use depends on the machine (see sized).
// Durability is PostgreSQL's default.
var settings = []string{
	"listen_addresses=", "unix_socket_directories=.", "unix_socket_permissions=0700", "port=5432",
	"superuser_reserved_connections=3",
	"wal_level=minimal", "max_wal_senders=0",
	"max_worker_processes=2", "max_parallel_workers_per_gather=0", "max_logical_replication_workers=0",
	"jit=off", "huge_pages=off", "timezone=UTC", "log_timezone=UTC", "lc_messages=C",
	"logging_collector=off", "log_destination=stderr", "log_line_prefix=", "log_checkpoints=off",
	// A client receives the errors of its own queries; statements can contain secrets.
	"log_min_messages=log", "log_min_error_statement=panic",
}

// Volatile are settings for a database that need not survive a crash of the machine.
var Volatile = []string{"fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off"}

// Command returns a command, not started yet, for PostgreSQL serving a data folder, with additional settings
// (name=value). Its working folder, environment and user are set. Only closeAfter releases the command's resources;
// call it after starting the command or giving it up.
func (in Install) Command(data string, more ...string) (cmd *exec.Cmd, closeAfter func(), err error) {
	cmd, closeAfter, err = in.program("postgres", data)
	if err != nil {
		return nil, nil, err
	}
	all := slices.Concat(settings, sized(machineMemory()), more)
	if in.Major >= 18 {
		all = append(all, "io_method=sync") // otherwise three processes wait for work
	}
	for _, s := range all {
		cmd.Args = append(cmd.Args, "-c", s)
	}
	return cmd, closeAfter, nil
}

// InitDB creates a data folder at dir, which must not exist, owned by the user that PostgreSQL runs as. If durable is
// set, the folder is on disk when InitDB returns. Without a password, every process that reaches the socket is
// superuser; only tests do that.
func (in Install) InitDB(ctx context.Context, dir, password string, durable bool) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return folderFault(err, dir)
	}
	maker := in
	if in.maker != nil {
		maker.account = in.maker
	}
	if err := maker.account.own(dir); err != nil {
		return folderFault(err, dir)
	}
	cmd, closeAfter, err := maker.program("initdb", dir)
	if err != nil {
		return err
	}
	defer closeAfter()
	auth := "trust"
	if password != "" {
		file, release, err := secretFile(cmd, password+"\n", maker.account)
		if err != nil {
			return fmt.Errorf("hand PostgreSQL its password: %w", err)
		}
		defer release()
		auth = "scram-sha-256"
		cmd.Args = append(cmd.Args, "--pwfile="+file)
	}
	cmd.Args = append(cmd.Args, "--username="+superuser, "--auth="+auth, "--encoding=UTF8", "--locale=C",
		"--no-instructions")
	if !durable {
		cmd.Args = append(cmd.Args, "--no-sync")
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = killGrace
	if err := runUntil(ctx, cmd); err != nil {
		text := strings.TrimSpace(out.String())
		if diskFull(text) {
			return fault.New(fault.Unavailable, "The disk that holds %s is full.", dir).
				WithDetail("PostgreSQL needs 50 MB to start (%s).", disk.Room(dir))
		}
		return fault.New(fault.Unavailable, "PostgreSQL cannot create its data folder %s: %w", dir, err).
			WithDetail("%s", lastLines(text, 5))
	}
	if err := in.account.takeOver(dir); err != nil {
		return folderFault(err, dir)
	}
	return nil
}

// setPassword sets the superuser's password in a data folder that no PostgreSQL is using. It runs one without a socket,
// which reads the statement from its standard input; the statement contains only a verifier of the password.
func (in Install) setPassword(ctx context.Context, data, password string) (err error) {
	check, err := verifier(password)
	if err != nil {
		return err
	}
	if in.maker != nil {
		owner := in.account
		// If this process ends before it returns the folder, the next start does so.
		if err := in.maker.takeOver(data); err != nil {
			return folderFault(err, data)
		}
		defer func() {
			if back := owner.takeOver(data); err == nil && back != nil {
				err = folderFault(back, data)
			}
		}()
		in.account = in.maker
	}
	cmd, closeAfter, err := in.Command(data)
	if err != nil {
		return err
	}
	defer closeAfter()
	cmd.Args = append(append([]string{cmd.Args[0], "--single"}, cmd.Args[1:]...), "postgres")
	cmd.Stdin = strings.NewReader("ALTER ROLE " + superuser + " PASSWORD '" + check + "'\n")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = killGrace
	err = runUntil(ctx, cmd)
	// An error in a statement does not change the exit status.
	for line := range strings.Lines(out.String()) {
		line = strings.TrimPrefix(line, "backend> ") // its prompt
		if level, _, _ := strings.Cut(line, ":"); err == nil &&
			(level == "ERROR" || level == "FATAL" || level == "PANIC") {
			err = errors.New(strings.TrimSpace(line))
		}
	}
	if err != nil {
		return fault.New(fault.Unavailable, "PostgreSQL cannot set its password: %w", err).
			WithDetail("%s", lastLines(strings.TrimSpace(out.String()), 5))
	}
	return nil
}

// program returns a command that runs one of PostgreSQL's programs on a data folder.
func (in Install) program(name, data string) (*exec.Cmd, func(), error) {
	cmd := exec.Command(filepath.Join(in.BinDir, name))
	cmd.Env = environ()
	cmd.Dir = "/"
	cmd.SysProcAttr = in.account.attributes()
	if in.account == nil || !passesFolders {
		cmd.Args = append(cmd.Args, "-D", data)
		return cmd, func() {}, nil
	}
	// The folders above may be closed to the user that the program runs as.
	folder, err := os.Open(data)
	if err != nil {
		return nil, nil, folderFault(err, data)
	}
	cmd.ExtraFiles = []*os.File{folder}
	cmd.Args = append(cmd.Args, "-D", "/proc/self/fd/3")
	return cmd, func() { folder.Close() }, nil
}

// runUntil runs a command until it exits, or kills it when ctx ends.
func runUntil(ctx context.Context, cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	var waitErr error
	ended := make(chan struct{})
	go func() { defer close(ended); waitErr = cmd.Wait() }()
	select {
	case <-ended:
		return waitErr
	case <-ctx.Done():
		killErr := killGroup(cmd.Process.Pid)
		<-ended
		return errors.Join(ctx.Err(), killErr)
	}
}

func diskFull(text string) bool {
	return strings.Contains(text, "No space left on device") || strings.Contains(text, "Disk quota exceeded")
}

func lastLines(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
