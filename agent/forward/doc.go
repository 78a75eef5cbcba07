// Package forward connects mesh connections to the workspace's own ports.
//
// It does not decide who may connect: the mesh's policy has already admitted every connection that arrives here.
package forward
