// Package settings gives a daemon one set of settings from four sources. A flag wins over its environment variable,
// which wins over the YAML file that --config names, which wins over the default.
//
// The value of a flag is the only parser: the environment and the file pass it the same text, so a duration or a size
// looks the same everywhere. Nothing stops at the first mistake. A Set collects what is wrong in all sources, and what
// the daemon adds with Check, and Err reports everything at once.
//
// A secret NAME can also come from a file: the Set adds --NAME-file, with the variable NAME_FILE and a key. No message
// and no written file contains a secret's value.
//
// This package owns how settings are read and written. It must not know which settings exist, nor any server: the
// daemon passes its flags and their keys.
package settings
