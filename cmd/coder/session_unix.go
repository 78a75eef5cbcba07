//go:build unix

package main

import "syscall"

// ownSession has a child start a session, so that no signal of this process's terminal or group reaches it.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
