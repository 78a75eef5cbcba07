package slim

// Open returns the binaries of a server that embeds other files.
var Open = open

// Hashed reports whether the checksums of a binary are known.
func (b *Binaries) Hashed(name string) bool { return b.each[name].sha256 != "" }
