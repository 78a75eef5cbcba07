// Package daemon has what the commands that run a daemon share: the flags for its log and HTTPS, the address for
// metrics, and the bound on its garbage. It must not know what a daemon does, since the slim binary contains it for
// region proxies.
package daemon
