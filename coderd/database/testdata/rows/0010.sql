INSERT INTO provisioner_job_changes (job_id, digest, address, creates, ended) VALUES
	('00000000-0000-4000-8000-000000000021', sha256('docker_container.workspace'), 'docker_container.workspace', true, 'complete');
INSERT INTO provisioner_job_state_pieces (job_id, first_byte, size, data) VALUES ('00000000-0000-4000-8000-000000000021', 0, 1, '\x7b');
