//go:build unix && !linux

package sshd

import "os"

func growPipe(*os.File) {}

func setModes(*os.File, string) error { return nil }
