SELECT id, agent_status(a), agent_problem(a) FROM workspace_agents a;
