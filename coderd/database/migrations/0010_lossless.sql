-- +goose Up

-- Whether the build has described the agent completely. Until then the agent may connect and gets no manifest.
ALTER TABLE workspace_agents ADD COLUMN complete boolean NOT NULL DEFAULT true;

-- The last step of each resource that an unfinished job has begun to change. If the provisioner is lost for good, the server reports
-- from it which resources the state may lack.
CREATE TABLE provisioner_job_changes (
	job_id uuid NOT NULL REFERENCES provisioner_jobs ON DELETE CASCADE,
	digest bytea NOT NULL,  -- SHA-256 of the address, which may be too long for an index
	address text NOT NULL,  -- in Terraform's notation
	creates boolean NOT NULL,
	ended text NOT NULL CHECK (ended IN ('', 'complete', 'errored')),
	PRIMARY KEY (job_id, digest)
);

-- Pieces of a state that a provisioner is sending, encrypted like states.
CREATE TABLE provisioner_job_state_pieces (
	job_id uuid NOT NULL REFERENCES provisioner_jobs ON DELETE CASCADE,
	first_byte bigint NOT NULL, -- of the state
	size bigint NOT NULL,       -- how many bytes of the state data holds
	data bytea NOT NULL,
	PRIMARY KEY (job_id, first_byte)
);
ALTER TABLE provisioner_job_state_pieces ALTER COLUMN data SET STORAGE EXTERNAL; -- encrypted data cannot be compressed

-- Resources that builds began to change and left unsettled. A failed build also carries over those of the previous one.
ALTER TABLE workspace_builds
	ADD COLUMN unknown_resources text[] NOT NULL DEFAULT '{}', -- these may exist without being in the state
	ADD COLUMN tainted_resources text[] NOT NULL DEFAULT '{}'; -- these are in the state, and the next build replaces them

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
