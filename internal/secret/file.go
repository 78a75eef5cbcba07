package secret

import (
	"os"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// ReadFile reads a file that contains a key. It returns the fault Invalid if accounts outside of the file's group can
// read or write the file, and this account can change that because the file is its own. Files of other accounts are
// accepted: container engines mount keys like that.
func ReadFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if isOwn(info) && info.Mode().Perm()&0o007 != 0 {
		return nil, fault.New(fault.Invalid, "The key %s can be read or replaced by every account of this machine.",
			name).WithDetail("Run: chmod 600 %s", shell.Word(name))
	}
	return os.ReadFile(name)
}
