//go:build !linux

package terraform_test

// attackers is empty, because there are no sandboxes here.
var attackers map[string]func(args []string) error
