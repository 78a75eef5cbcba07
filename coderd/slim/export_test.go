package slim

// Open returns the binaries of a server that embeds other files.
var Open = open
