INSERT INTO forgotten_state_keys (key_id) VALUES ('\x0102030405060708');
UPDATE git_ssh_keys SET private_key = '', sealed = '\x0a0b';
