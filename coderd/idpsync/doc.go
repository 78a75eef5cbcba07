// Package idpsync owns what an identity provider's claims mean for a user: organizations, groups, and roles in
// organizations and in the deployment. It decides (Decide, a pure function), applies and records the changes, and
// serves the settings. It knows no provider and no session: package signin hands it claims that it has verified. It
// must not know templates, workspaces or the mesh.
//
//	claims ──┐
//	settings ├── Decide ──▶ Plan ── apply, in the transaction of the sign-in ──▶ memberships, audit log
//	today ───┘
//
// # What sync owns
//
// Sync takes away only what it owns:
//
//   - what the claims gave at an earlier sign-in (user_links.synced),
//   - what a mapping names,
//   - groups that sync created, but never groups that SCIM provisioned,
//   - the default organization, if organization sync does not assign it,
//   - all roles of the deployment, if the server's options name a claim with them. The last owner stays an owner.
//
// Everything else belongs to administrators and stays.
//
// # Claims that cannot be used
//
// A missing claim is an empty list. A claim of another type than a list of texts, or with other things among the texts,
// is not evidence: what it does say counts, but sync takes nothing away. The same holds for claims that the provider
// keeps elsewhere (_claim_names), and for claims that are missing in an answer without an ID token. The log then names
// the claim and the user.
package idpsync
