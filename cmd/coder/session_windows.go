package main

import "syscall"

// ownSession starts a child in its own process group, so that Ctrl-C does not reach it.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
