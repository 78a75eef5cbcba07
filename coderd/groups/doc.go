// Package groups owns groups of users, and the rules for sharing templates and workspaces with users and groups of
// their organization. It knows neither templates nor workspaces: those store a rbac.Sharing of their own, which Share
// changes and Resolve shows.
//
// Each organization has a group Everyone with the organization's id. All members belong to it, without rows. It cannot
// be renamed, deleted or given members; only its quota can change.
package groups
