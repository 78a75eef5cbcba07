UPDATE workspace_agents SET subsystems = '{envbuilder}' WHERE id = '00000000-0000-4000-8000-000000000043';
