// Package result reads what Terraform says and leaves behind: its output, plans, states and graph, and turns them into
// what servers and users see of a job.
//
//	terraform … -json ──> Output ──> Log (lines), Changes (what began and ended), Diagnostics (Explain)
//	terraform.tfstate ──> Folder ──> Watch (checkpoints, agents as soon as they exist) ──> State ──> DeriveResources
//	terraform show    ──> ReadPlan ──> ReadTags, ReadDeclared, CheckSupport, Lost, Cost, Rehearsal.ClaimPlan
//
// Most of it is functions of Terraform's JSON and of the template's source (package template). A Watch and a Log also
// tell the job's sink. All that it reads may come from a hostile template: files are opened below the job's folder,
// bounded, and never followed out of it; lines for logs pass package printable.
//
// This package must not know how Terraform is run: neither the executor nor the sandbox.
package result
