//go:build !unix

package agent

func isReadOnly(error) bool { return false }
