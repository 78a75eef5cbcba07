//go:build !linux

package memory

func freeProgram() error { return nil }
