//go:build unix && !linux

package sshd

import "os"

func setModes(*os.File, string) error { return nil }
