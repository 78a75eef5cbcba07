package autostart

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

const programName = "coder"

// protect does nothing: the modes of files say who may read them.
func protect(string) error { return nil }

// setAside does nothing: a program that runs can be replaced.
func setAside(string) {}

// remove removes the service's folder.
func remove(folder string) error { return os.RemoveAll(folder) }

// file returns where the property list is: among the machine's, or among the account's.
func (o Options) file() string {
	if o.Machine {
		return filepath.Join("/Library/LaunchDaemons", label+".plist")
	}
	return filepath.Join(o.Home, "Library", "LaunchAgents", label+".plist")
}

// domain returns launchd's domain for the service: the machine's, or the account's graphical session.
func (o Options) domain() string {
	if o.Machine {
		return "system"
	}
	return "gui/" + strconv.Itoa(os.Getuid())
}

// available reports whether launchd has the domain: an account has one while it is logged in at the screen.
func available(ctx context.Context, o Options) error {
	if err := o.command(ctx, "launchctl", "print", o.domain()); err != nil {
		return fmt.Errorf("launchd has no domain %s: %w", o.domain(), err)
	}
	return nil
}

func register(ctx context.Context, o Options) (note string, err error) {
	if err := os.MkdirAll(filepath.Dir(o.file()), 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(o.file(), []byte(plist(o, os.LookupEnv)), 0o644); err != nil {
		return "", err
	}
	if !o.Machine {
		note = "The agent runs while " + o.Account + " is logged in. As root, the command makes it start with the machine."
	}
	service := o.domain() + "/" + label
	if o.command(ctx, "launchctl", "print", service) == nil {
		// launchd keeps what it has read of the file until the next login. The command may run in a session of the very
		// agent that ends now.
		return note, o.command(ctx, "launchctl", "kickstart", "-k", service)
	}
	return note, o.command(ctx, "launchctl", "bootstrap", o.domain(), o.file())
}

func unregister(ctx context.Context, o Options) error {
	err := os.Remove(o.file())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, o.command(ctx, "launchctl", "bootout", o.domain()+"/"+label))
}
