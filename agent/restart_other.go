//go:build !unix

package agent

import "os"

func restartSignals(bool) chan os.Signal { return make(chan os.Signal) }
