-- +goose Up

-- What a claim will make of a prebuilt workspace's agents for any user: a ClaimPlan of the build-job protocol. NULL if only the claim's
-- build can tell.
ALTER TABLE prebuilt_workspaces ADD COLUMN claim_plan bytea;

-- The build gives a prebuilt workspace to its user, who has had the agents since before it began.
ALTER TABLE workspace_builds ADD COLUMN instant_claim boolean NOT NULL DEFAULT false;

-- The number of the build whose manifest the agent must have before its new owner may connect; NULL if it has it. A claim sets it, and the agent's
-- report clears it. Servers of an earlier version neither set nor clear it.
ALTER TABLE workspace_agents ADD COLUMN awaited_build integer;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
