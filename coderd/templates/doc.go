// Package templates owns templates and their versions: uploading a version (which queues its import), what the import
// found (variables, parameters, presets, tags, resources), dry runs, and the rules that parameter values obey.
//
// A version is imported once and permanently belongs to at most one template; one version of a template is active.
// Imports and dry runs are jobs, and the service is the jobs' handler for both kinds.
//
// The package must not know workspaces beyond whether a template is still in use.
package templates
