// Package forward carries connections that reach the workspace over the mesh to the workspace's own ports.
//
// It decides nothing about who may connect: a connection that arrives here was let in by the mesh's policy.
package forward
