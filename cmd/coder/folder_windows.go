package main

// usable returns nil: the first write to the folder shows whether it can be used.
func usable(string) error { return nil }
