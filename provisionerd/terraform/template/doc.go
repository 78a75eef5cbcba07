// Package template reads what the source of a template says without running Terraform, and rewrites it for a job.
//
// Read looks at an unpacked template once: its variables, the parameters that are always there, whether anything must be installed
// first, which of the owner's secrets it names, and what of it this server cannot do. Project reduces it to what its parameters depend on,
// so that Terraform evaluates a form without credentials and without other providers; an Edited file replaces the template's own of that
// name in a job's folder.
//
// What it reads was written by strangers: every file is opened below an os.Root and bounded, and HCL is parsed by internal/syntax only.
// This package must not know jobs, sandboxes or the daemon.
package template
