package main

import "syscall"

// ownSession has a child in a process group of its own: Ctrl-C does not reach it.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
