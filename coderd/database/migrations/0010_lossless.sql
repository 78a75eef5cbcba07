-- +goose Up

-- Whether the build has described the agent completely. Until then the agent may connect and gets no manifest.
ALTER TABLE workspace_agents ADD COLUMN complete boolean NOT NULL DEFAULT true;

-- What an unfinished job's Terraform has begun to change, with the last step of each resource. When the provisioner is lost for
-- good, the server names from it what the state may lack.
CREATE TABLE provisioner_job_changes (
	job_id uuid NOT NULL REFERENCES provisioner_jobs ON DELETE CASCADE,
	digest bytea NOT NULL,  -- SHA-256 of the address, which may be too long for an index
	address text NOT NULL,  -- as Terraform writes it
	creates boolean NOT NULL,
	ended text NOT NULL CHECK (ended IN ('', 'complete', 'errored')),
	PRIMARY KEY (job_id, digest)
);

-- The parts of a state that is on its way from a provisioner, encrypted as states are.
CREATE TABLE provisioner_job_state_pieces (
	job_id uuid NOT NULL REFERENCES provisioner_jobs ON DELETE CASCADE,
	first_byte bigint NOT NULL, -- of the state
	size bigint NOT NULL,       -- bytes of the state that data holds
	data bytea NOT NULL,
	PRIMARY KEY (job_id, first_byte)
);
ALTER TABLE provisioner_job_state_pieces ALTER COLUMN data SET STORAGE EXTERNAL; -- what is encrypted cannot be compressed

-- What builds began and nothing has settled since. A build that fails carries on what the one before it left.
ALTER TABLE workspace_builds
	ADD COLUMN unknown_resources text[] NOT NULL DEFAULT '{}', -- may exist without being in the state
	ADD COLUMN tainted_resources text[] NOT NULL DEFAULT '{}'; -- in the state, to be made anew

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
