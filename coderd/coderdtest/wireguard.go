package coderdtest

import "github.com/codermesh/codermesh/v2/coderd"

// WireGuard is an edit for New: the server says that it has a WireGuard gateway, so that users can add devices. Nothing
// listens at its address.
func WireGuard(opts *coderd.Options) { opts.WireGuardAccess = "wg.example.com:51820" }
