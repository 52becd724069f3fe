CREATE SCHEMA ai;
CREATE TABLE ai.agno_memories (
    memory_id character varying NOT NULL,
    memory jsonb NOT NULL,
    feedback text,
    input text,
    agent_id character varying,
    team_id character varying,
    user_id character varying,
    topics jsonb,
    created_at bigint NOT NULL,
    updated_at bigint
);
CREATE TABLE ai.agno_runs (
    run_id character varying NOT NULL,
    session_id character varying NOT NULL,
    run_type character varying NOT NULL,
    agent_id character varying,
    team_id character varying,
    workflow_id character varying,
    user_id character varying,
    parent_run_id character varying,
    status character varying,
    run_index bigint,
    run_data jsonb NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint
);
CREATE TABLE ai.agno_schema_versions (
    table_name character varying NOT NULL,
    version character varying NOT NULL,
    created_at character varying NOT NULL,
    updated_at character varying
);
CREATE TABLE ai.agno_sessions (
    session_id character varying NOT NULL,
    session_type character varying NOT NULL,
    agent_id character varying,
    team_id character varying,
    workflow_id character varying,
    user_id character varying,
    session_data jsonb,
    agent_data jsonb,
    team_data jsonb,
    workflow_data jsonb,
    metadata jsonb,
    summary jsonb,
    created_at bigint NOT NULL,
    updated_at bigint
);
INSERT INTO ai.agno_memories VALUES ('e01dd4fc-696f-44f6-ad0d-abaab7564fd3', '"Ana''s cat is called Tom."', NULL, 'My cat Tom', NULL, NULL, 'ana', '["pets"]', 1700000000, 1700000000);
INSERT INTO ai.agno_memories VALUES ('2053876f-f6d0-495f-890c-70259f776fbf', '"Ana says \"it''s fine\"."', 'right', NULL, NULL, NULL, 'ana', 'null', 1700000000, 1700000000);
INSERT INTO ai.agno_memories VALUES ('0fb79c41-e4c8-4bb3-82e5-cf59d6d46780', '"Bo likes tea."', NULL, NULL, 'helper', NULL, 'bo', 'null', 1700000000, 1700000000);
INSERT INTO ai.agno_memories VALUES ('6a4870d8-5c4e-464c-b8f7-b4358f3a926a', '"Someone runs."', NULL, NULL, NULL, NULL, 'default', 'null', 1700000000, 1700000000);
INSERT INTO ai.agno_runs VALUES ('4ea43383-a9d3-4a52-9d26-dc0c9ae6e237', 'trip', 'agent', 'helper', NULL, NULL, 'ana', NULL, 'COMPLETED', 0, '{"input": {"input_content": "I moved to Lisbon in May."}, "model": "scripted", "tools": [], "run_id": "4ea43383-a9d3-4a52-9d26-dc0c9ae6e237", "status": "COMPLETED", "content": "You said: I moved to Lisbon in May.", "metrics": {"duration": 0.015678515999752562, "time_to_first_token": 0.015602764004142955}, "user_id": "ana", "agent_id": "helper", "messages": [{"id": "06f75dcc-7c42-4121-bca2-84f81486a542", "role": "system", "content": "You help.", "created_at": 1795483937, "from_history": false, "stop_after_tool_call": false}, {"id": "d3fd94bc-c421-4d77-803b-548c9525a1c7", "role": "user", "content": "I moved to Lisbon in May.", "created_at": 1795483937, "from_history": false, "stop_after_tool_call": false}, {"id": "af596bc3-6bbb-4526-8112-8e2dca98e207", "role": "assistant", "content": "You said: I moved to Lisbon in May.", "metrics": {"time_to_first_token": 0.00004534699837677181}, "created_at": 1795483937, "from_history": false, "stop_after_tool_call": false}], "created_at": 1795483937, "session_id": "trip", "content_type": "str", "session_state": {}}', 1795483937, 1795483937);
INSERT INTO ai.agno_runs VALUES ('4d02da78-7129-4119-aba1-c987143ae513', 'trip', 'agent', 'helper', NULL, NULL, 'ana', NULL, 'COMPLETED', 1, '{"input": {"input_content": "How is the weather?"}, "model": "scripted", "tools": [{"result": "Sunny in Lisbon.", "metrics": {"duration": 0.00031349599885288626, "end_time": 1795483937.9828613, "start_time": 1795483937.9825478}, "answered": null, "confirmed": null, "tool_args": {"city": "Lisbon"}, "tool_name": "weather", "created_at": 1795483937, "approval_id": null, "child_run_id": null, "tool_call_id": "call-1", "approval_type": null, "tool_call_error": false, "confirmation_note": null, "user_input_schema": null, "parent_tool_call_id": null, "requires_user_input": null, "stop_after_tool_call": false, "user_feedback_schema": null, "requires_confirmation": null, "external_execution_silent": null, "external_execution_required": null}], "run_id": "4d02da78-7129-4119-aba1-c987143ae513", "status": "COMPLETED", "content": "You said: Sunny in Lisbon.", "metrics": {"duration": 0.005734899998060428, "time_to_first_token": 0.0004386610016808845}, "user_id": "ana", "agent_id": "helper", "messages": [{"id": "87c1b3f0-d3f0-4291-b4c7-5bb766cf04fe", "role": "system", "content": "You help.", "created_at": 1795483937, "from_history": false, "stop_after_tool_call": false}, {"id": "2eecd8f0-e2ea-4e1a-8ec6-124a636e0c82", "role": "user", "content": "How is the weather?", "created_at": 1795483937, "from_history": false, "stop_after_tool_call": false}, {"id": "d63bb390-a22b-4567-b206-af85c8038a64", "role": "assistant", "created_at": 1795483937, "tool_calls": [{"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Lisbon\"}"}}], "from_history": false, "stop_after_tool_call": false}, {"id": "66ac72a3-14ee-4c3e-af8b-efe82ccefe21", "role": "tool", "content": "Sunny in Lisbon.", "tool_args": {"city": "Lisbon"}, "tool_name": "weather", "created_at": 1795483937, "from_history": false, "tool_call_id": "call-1", "tool_call_error": false, "stop_after_tool_call": false}, {"id": "3d339286-7161-4fa2-ab6e-dff2b398577a", "role": "assistant", "content": "You said: Sunny in Lisbon.", "metrics": {"time_to_first_token": 0.000012528995284810662}, "created_at": 1795483937, "from_history": false, "stop_after_tool_call": false}], "created_at": 1795483937, "session_id": "trip", "content_type": "str", "session_state": {}}', 1795483937, 1795483937);
INSERT INTO ai.agno_runs VALUES ('bbad9300-02d2-4bb0-afef-6bb3d756c37c', 'trip', 'agent', 'helper', NULL, NULL, 'ana', NULL, 'COMPLETED', 2, '{"input": {"input_content": "Thank you, and good night."}, "model": "scripted", "tools": [], "run_id": "bbad9300-02d2-4bb0-afef-6bb3d756c37c", "status": "COMPLETED", "content": "You said: Thank you, and good night.", "metrics": {"duration": 0.000395025999750942, "time_to_first_token": 0.00035985399881610647}, "user_id": "ana", "agent_id": "helper", "messages": [{"id": "92d32dfd-ca1c-46fd-bfbd-f573b0e632c8", "role": "system", "content": "You help.", "created_at": 1795483937, "from_history": false, "stop_after_tool_call": false}, {"id": "12f07d04-3874-4ab5-b803-d2d86b6c0b3a", "role": "user", "content": "Thank you, and good night.", "created_at": 1795483937, "from_history": false, "stop_after_tool_call": false}, {"id": "b9ef8ced-8c3d-4591-b035-fa590cddb0ca", "role": "assistant", "content": "You said: Thank you, and good night.", "metrics": {"time_to_first_token": 0.000013189994206186384}, "created_at": 1795483937, "from_history": false, "stop_after_tool_call": false}], "created_at": 1795483937, "session_id": "trip", "content_type": "str", "session_state": {}}', 1795483937, 1795483937);
INSERT INTO ai.agno_runs VALUES ('b4eadf5e-eca8-499e-b56c-e4a0ea8d3979', 'desk', 'agent', 'helper', NULL, NULL, 'bo', NULL, 'COMPLETED', 0, '{"input": {"input_content": "My sister''s name is Mia."}, "model": "scripted", "tools": [], "run_id": "b4eadf5e-eca8-499e-b56c-e4a0ea8d3979", "status": "COMPLETED", "content": "You said: My sister''s name is Mia.", "metrics": {"duration": 0.0003678659995784983, "time_to_first_token": 0.0003328340026200749}, "user_id": "bo", "agent_id": "helper", "messages": [{"id": "e6d77758-38f6-4a2e-b8ba-a80c23533ea8", "role": "system", "content": "You help.", "created_at": 1795483938, "from_history": false, "stop_after_tool_call": false}, {"id": "a33f3edb-ee3e-44fe-b7d4-d1f801e98037", "role": "user", "content": "My sister''s name is Mia.", "created_at": 1795483938, "from_history": false, "stop_after_tool_call": false}, {"id": "bbcb4e17-9f61-425a-8e11-00e95192d556", "role": "assistant", "content": "You said: My sister''s name is Mia.", "metrics": {"time_to_first_token": 0.000015221994544845074}, "created_at": 1795483938, "from_history": false, "stop_after_tool_call": false}], "created_at": 1795483938, "session_id": "desk", "content_type": "str", "session_state": {}}', 1795483938, 1795483938);
INSERT INTO ai.agno_runs VALUES ('0cd70f17-9793-4a2d-ae90-9da496954fe9', 'old', 'agent', 'helper', NULL, NULL, NULL, NULL, 'COMPLETED', 0, '{"input": {"input_content": "I moved to Lisbon in May."}, "model": "scripted", "tools": [], "run_id": "0cd70f17-9793-4a2d-ae90-9da496954fe9", "status": "COMPLETED", "content": "You said: I moved to Lisbon in May.", "metrics": {"duration": 0.0002987530024256557, "time_to_first_token": 0.0002695400035008788}, "agent_id": "helper", "messages": [{"id": "041e2251-0d7d-4403-99f9-a9f034bca0e3", "role": "system", "content": "You help.", "created_at": 1795483938, "from_history": false, "stop_after_tool_call": false}, {"id": "a11d29af-fae6-49ef-b92b-c590397076b3", "role": "user", "content": "I moved to Lisbon in May.", "created_at": 1795483938, "from_history": false, "stop_after_tool_call": false}, {"id": "5746037a-3bf9-42ed-b481-e646a59dd764", "role": "assistant", "content": "You said: I moved to Lisbon in May.", "metrics": {"time_to_first_token": 0.000013289994967635721}, "created_at": 1795483938, "from_history": false, "stop_after_tool_call": false}], "created_at": 1795483938, "session_id": "old", "content_type": "str", "session_state": {}}', 1795483938, 1795483938);
INSERT INTO ai.agno_runs VALUES ('b1d8684b-0ff5-474b-9b5e-97bf632c7c7f', 'crew', 'team', NULL, 'crew', NULL, 'ana', NULL, 'COMPLETED', 0, '{"input": {"input_content": "Plan a trip for me."}, "model": "scripted", "tools": [], "run_id": "b1d8684b-0ff5-474b-9b5e-97bf632c7c7f", "status": "COMPLETED", "content": "You said: Plan a trip for me.", "metrics": {"duration": 0.003064757998799905, "time_to_first_token": 0.003019650997885037}, "team_id": "crew", "user_id": "ana", "messages": [{"id": "1f0b7d00-2adf-41d5-a8a3-a7320104003e", "role": "system", "content": "You lead.", "created_at": 1795483938, "from_history": false, "stop_after_tool_call": false}, {"id": "ac6376a0-6af2-4507-8893-b6944180b36c", "role": "user", "content": "Plan a trip for me.", "created_at": 1795483938, "from_history": false, "stop_after_tool_call": false}, {"id": "a6ddc332-a3bb-48a3-9724-67212aa18cdf", "role": "assistant", "content": "You said: Plan a trip for me.", "metrics": {"time_to_first_token": 0.000015773002814967185}, "created_at": 1795483938, "from_history": false, "stop_after_tool_call": false}], "created_at": 1795483938, "session_id": "crew", "content_type": "str", "session_state": {}, "member_responses": []}', 1795483938, 1795483938);
INSERT INTO ai.agno_runs VALUES ('e8f54f0f-6f3d-4c4e-9a6c-d12a137e5bef', 'crew', 'team', NULL, 'crew', NULL, 'ana', NULL, 'COMPLETED', 1, '{"input": {"input_content": "Make it three days."}, "model": "scripted", "tools": [], "run_id": "e8f54f0f-6f3d-4c4e-9a6c-d12a137e5bef", "status": "COMPLETED", "content": "You said: Make it three days.", "metrics": {"duration": 0.00662812600057805, "time_to_first_token": 0.006579314002010506}, "team_id": "crew", "user_id": "ana", "messages": [{"id": "426c82b5-82de-401f-8887-2e6722e2ff9d", "role": "system", "content": "You lead.", "created_at": 1795483938, "from_history": false, "stop_after_tool_call": false}, {"id": "a3fe77b2-a5f0-438e-92ba-c2aed37ec2ef", "role": "user", "content": "Make it three days.", "created_at": 1795483938, "from_history": false, "stop_after_tool_call": false}, {"id": "b266a08f-63cf-4812-b9c5-6bfcfdce2537", "role": "assistant", "content": "You said: Make it three days.", "metrics": {"time_to_first_token": 0.000022692998754791915}, "created_at": 1795483938, "from_history": false, "stop_after_tool_call": false}], "created_at": 1795483938, "session_id": "crew", "content_type": "str", "session_state": {}, "member_responses": []}', 1795483938, 1795483938);
INSERT INTO ai.agno_schema_versions VALUES ('agno_sessions', '3.0.0', '2026-11-24T01:32:17.929894', '2026-11-24T01:32:17.929894');
INSERT INTO ai.agno_schema_versions VALUES ('agno_runs', '3.0.0', '2026-11-24T01:32:17.968297', '2026-11-24T01:32:17.968297');
INSERT INTO ai.agno_schema_versions VALUES ('agno_memories', '3.0.0', '2026-11-24T01:32:18.099216', '2026-11-24T01:32:18.099216');
INSERT INTO ai.agno_sessions VALUES ('trip', 'agent', 'helper', NULL, NULL, 'ana', '{"session_state": {}, "session_metrics": {}}', '{"model": {"id": "scripted"}, "agent_id": "helper"}', NULL, NULL, 'null', 'null', 1795483937, 1795483937);
INSERT INTO ai.agno_sessions VALUES ('desk', 'agent', 'helper', NULL, NULL, 'bo', '{"session_state": {}, "session_metrics": {}}', '{"model": {"id": "scripted"}, "agent_id": "helper"}', NULL, NULL, 'null', 'null', 1795483938, 1795483938);
INSERT INTO ai.agno_sessions VALUES ('old', 'agent', 'helper', NULL, NULL, NULL, '{"session_state": {}, "session_metrics": {}}', '{"model": {"id": "scripted"}, "agent_id": "helper"}', NULL, NULL, 'null', 'null', 1795483938, 1795483938);
INSERT INTO ai.agno_sessions VALUES ('crew', 'team', NULL, 'crew', NULL, 'ana', '{"session_state": {}, "session_metrics": {}}', NULL, '{"model": {"id": "scripted"}, "team_id": "crew"}', NULL, 'null', 'null', 1795483938, 1795483938);
ALTER TABLE ONLY ai.agno_memories
    ADD CONSTRAINT agno_memories_pkey PRIMARY KEY (memory_id);
ALTER TABLE ONLY ai.agno_runs
    ADD CONSTRAINT agno_runs_pkey PRIMARY KEY (run_id);
ALTER TABLE ONLY ai.agno_schema_versions
    ADD CONSTRAINT agno_schema_versions_pkey PRIMARY KEY (table_name);
ALTER TABLE ONLY ai.agno_sessions
    ADD CONSTRAINT agno_sessions_pkey PRIMARY KEY (session_id);
CREATE INDEX idx_agno_memories_created_at ON ai.agno_memories USING btree (created_at);
CREATE INDEX idx_agno_memories_updated_at ON ai.agno_memories USING btree (updated_at);
CREATE INDEX idx_agno_memories_user_id ON ai.agno_memories USING btree (user_id);
CREATE INDEX idx_agno_runs_agent_id ON ai.agno_runs USING btree (agent_id);
CREATE INDEX idx_agno_runs_created_at ON ai.agno_runs USING btree (created_at);
CREATE INDEX idx_agno_runs_run_type ON ai.agno_runs USING btree (run_type);
CREATE INDEX idx_agno_runs_session_id ON ai.agno_runs USING btree (session_id);
CREATE INDEX idx_agno_runs_session_id_run_index ON ai.agno_runs USING btree (session_id, run_index);
CREATE INDEX idx_agno_runs_status ON ai.agno_runs USING btree (status);
CREATE INDEX idx_agno_runs_team_id ON ai.agno_runs USING btree (team_id);
CREATE INDEX idx_agno_runs_user_id ON ai.agno_runs USING btree (user_id);
CREATE INDEX idx_agno_runs_workflow_id ON ai.agno_runs USING btree (workflow_id);
CREATE INDEX idx_agno_schema_versions_created_at ON ai.agno_schema_versions USING btree (created_at);
CREATE INDEX idx_agno_sessions_created_at ON ai.agno_sessions USING btree (created_at);
CREATE INDEX idx_agno_sessions_session_type ON ai.agno_sessions USING btree (session_type);
ALTER TABLE ONLY ai.agno_runs
    ADD CONSTRAINT agno_runs_session_id_fkey FOREIGN KEY (session_id) REFERENCES ai.agno_sessions(session_id) ON DELETE CASCADE;
