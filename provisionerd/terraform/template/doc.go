// Package template analyzes a template's source without running Terraform, and rewrites it for a job.
//
// Read analyzes an unpacked template: its variables, its unconditional parameters, whether anything must be installed first,
// which of the owner's secrets it uses, and which features this server does not support. Project reduces it to what its
// parameters depend on, so that Terraform evaluates a form without credentials and without other providers. An Edited file
// replaces the template's file of that name in a job's folder.
//
// Templates are untrusted: every file is opened below an os.Root with a size limit, and only internal/syntax parses HCL. This
// package must not know jobs, sandboxes or the daemon.
package template
