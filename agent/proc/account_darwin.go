package proc

import "os/user"

// shells are those to choose from if the environment names none.
var shells = []string{"zsh", "bash", "sh"}

// systemAccount adds what passwd does not have: macOS keeps the accounts of people in a directory of its own. Their
// shells are in SHELL.
func systemAccount(u User) User {
	if account, err := user.Current(); err == nil {
		u.Name, u.Home = firstOf(u.Name, account.Username), firstOf(u.Home, account.HomeDir)
	}
	return u
}
