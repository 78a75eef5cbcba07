// Package forward connects mesh connections to the workspace's own ports.
//
// It makes no access decisions: the mesh's policy has admitted every connection that arrives here.
package forward
