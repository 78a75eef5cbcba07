//go:build !windows

package proc

// fold returns the form in which names of variables are compared.
func fold(name string) string { return name }
