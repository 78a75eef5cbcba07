// Package templates owns templates and their versions: uploading a version (which queues its import), what the import found
// (variables, parameters, presets, tags, resources), dry runs, and the rules that parameter values obey.
//
// A version is imported once and belongs to at most one template for ever; one version of a template is active. A version's
// import is a job, and so is a dry run: the service is the jobs' handler for both kinds.
//
// It must not know workspaces beyond whether a template is still in use.
package templates
