INSERT INTO scim_users (user_id, user_name, external_id) VALUES ('00000000-0000-4000-8000-000000000002', 'bob', '42');
INSERT INTO scim_groups (group_id, external_id) VALUES ('00000000-0000-4000-8000-000000000060', '43');
