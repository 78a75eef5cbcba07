//go:build unix

package main

import "syscall"

// ownSession starts a child in its own session, so that no signal of this process's terminal or group reaches it.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
