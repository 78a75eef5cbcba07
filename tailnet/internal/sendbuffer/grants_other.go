//go:build !linux

package sendbuffer

func grants() bool { return false }
