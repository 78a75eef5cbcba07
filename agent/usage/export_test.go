package usage

import "io/fs"

// Of returns a Meter that reads below a folder that looks like "/".
func Of(root fs.FS) *Meter { return &Meter{root: root} }
