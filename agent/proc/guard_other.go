//go:build !unix

package proc

// Guard accepts every path: the system's temporary folders belong to one account each.
func Guard(string) error { return nil }
