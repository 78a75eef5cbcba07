-- +goose Up

-- Servers of two releases run beside each other during an upgrade, and again when it is taken back. So a migration first only adds what the new
-- release needs ("expand"). A later release, which no longer uses the old tables and columns, removes them ("contract").
--
-- A program may run on a schema with migrations that it does not know, unless one of them needs a newer program. oldest_program is the newest
-- migration that a program must at least know.
CREATE TABLE schema_support (
	singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
	oldest_program bigint NOT NULL
);
INSERT INTO schema_support (oldest_program) VALUES (46);

-- The newest migration that the server's program knows; 0 for programs from before this column.
ALTER TABLE servers ADD COLUMN schema bigint NOT NULL DEFAULT 0;

-- A migration that contracts calls this first, with the number of the newest migration that a program must know so that it does not miss what is removed.
-- It fails while a server runs that would miss it. The message is that server's URL.
-- +goose StatementBegin
CREATE FUNCTION require_program(oldest bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	other text;
BEGIN
	SELECT url INTO other FROM servers
	WHERE url <> '' AND schema < oldest AND beat_at > now() - interval '15 seconds' ORDER BY started_at LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'CM001', MESSAGE = other;
	END IF;
	UPDATE schema_support SET oldest_program = greatest(oldest_program, oldest);
END $$;
-- +goose StatementEnd

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
