// Package template reads the source of a template without running Terraform, and rewrites it for a job.
//
// Read examines an unpacked template once: its variables, its unconditional parameters, whether anything must be
// installed first, which of the owner's secrets it names, and which of its features this server lacks. Project reduces
// it to what its parameters depend on, so that Terraform evaluates a form without credentials and other providers. An
// Edited file replaces the template's file of that name in a job's folder.
//
// Templates are untrusted input: every file is opened below an os.Root and bounded, and HCL is parsed by
// internal/syntax only. This package must not know jobs, sandboxes or the daemon.
package template
