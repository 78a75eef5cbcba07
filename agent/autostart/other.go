//go:build !linux && !windows && !darwin

package autostart

import (
	"context"
	"errors"
)

const programName = "coder"

func available(context.Context, Options) error {
	return errors.New("the workspace agent runs on Linux, macOS and Windows")
}

func protect(string) error { return nil }
func setAside(string)      {}
func remove(string) error  { return nil }

func register(context.Context, Options) (string, error) { return "", nil }

func unregister(context.Context, Options) error { return nil }
