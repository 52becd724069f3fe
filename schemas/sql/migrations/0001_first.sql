-- step: the revision
CREATE TABLE strandline.alembic_version (version_num varchar(32) PRIMARY KEY)

-- step: search_code_v1
-- function: search_code_v1

-- step: search_terms_v1
-- function: search_terms_v1

-- step: role_key_v1
-- function: role_key_v1

-- step: table store_item
CREATE TABLE strandline.store_item (
	shard_key UUID NOT NULL,
	path TEXT COLLATE "C" NOT NULL,
	key TEXT COLLATE "C" NOT NULL,
	value JSON NOT NULL,
	vectors HALFVEC[] DEFAULT '{}' NOT NULL,
	ttl_minutes DOUBLE PRECISION,
	expires_at TIMESTAMP WITH TIME ZONE,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT store_item_pkey PRIMARY KEY (shard_key, path, key),
	CONSTRAINT store_item_ttl_check CHECK ((ttl_minutes IS NULL) = (expires_at IS NULL))
)

-- step: index store_item_by_expiry
CREATE INDEX store_item_by_expiry ON strandline.store_item (expires_at) WHERE expires_at IS NOT NULL

-- step: comment on table store_item
COMMENT ON TABLE strandline.store_item IS 'Values that an application keeps under a path and a key, with vectors of their texts'

-- step: table encryption
CREATE TABLE strandline.encryption (
	namespace TEXT COLLATE "C" NOT NULL,
	kek_id TEXT NOT NULL,
	probe BYTEA NOT NULL,
	vectors TEXT NOT NULL,
	enabled_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	changed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT encryption_pkey PRIMARY KEY (namespace),
	CONSTRAINT encryption_vectors_check CHECK (vectors IN ('clear', 'off'))
)

-- step: comment on table encryption
COMMENT ON TABLE strandline.encryption IS 'The namespaces whose content is sealed, and the key that wraps the keys of their owners'

-- step: table data_key
CREATE TABLE strandline.data_key (
	shard_key UUID NOT NULL,
	number INTEGER NOT NULL,
	namespace TEXT COLLATE "C" NOT NULL,
	kek_id TEXT NOT NULL,
	wrapped BYTEA NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	settled_at TIMESTAMP WITH TIME ZONE,
	CONSTRAINT data_key_pkey PRIMARY KEY (shard_key, number),
	CONSTRAINT data_key_number_check CHECK (number >= 1)
)

-- step: index data_key_by_kek
CREATE INDEX data_key_by_kek ON strandline.data_key (kek_id, shard_key, number)

-- step: index data_key_by_namespace
CREATE INDEX data_key_by_namespace ON strandline.data_key (namespace, shard_key, number)

-- step: index data_key_unsettled
CREATE INDEX data_key_unsettled ON strandline.data_key (namespace, shard_key) WHERE settled_at IS NULL

-- step: comment on table data_key
COMMENT ON TABLE strandline.data_key IS 'Wrapped keys of owners: a data key, by its number, with the search key, which stays the same'

-- step: table service_key
CREATE TABLE strandline.service_key (
	key_id TEXT COLLATE "C" NOT NULL,
	secret_digest BYTEA NOT NULL,
	namespace TEXT COLLATE "C",
	user_id TEXT,
	scopes TEXT[] NOT NULL,
	shared_scopes TEXT[] DEFAULT '{}' NOT NULL,
	label TEXT DEFAULT '' NOT NULL,
	rotated_from TEXT COLLATE "C",
	made_by TEXT COLLATE "C",
	request_key UUID,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	expires_at TIMESTAMP WITH TIME ZONE,
	revoked_at TIMESTAMP WITH TIME ZONE,
	CONSTRAINT service_key_pkey PRIMARY KEY (key_id),
	CONSTRAINT service_key_digest_check CHECK (length(secret_digest) = 32),
	CONSTRAINT service_key_scopes_check CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'write', 'facts', 'erase', 'operate']),
	CONSTRAINT service_key_shared_check CHECK (user_id IS NOT NULL OR shared_scopes = '{}'),
	CONSTRAINT service_key_bound_check CHECK (namespace IS NOT NULL OR (user_id IS NULL AND scopes = ARRAY['operate']))
)

-- step: index service_key_by_namespace
CREATE INDEX service_key_by_namespace ON strandline.service_key (namespace, key_id)

-- step: unique index service_key_by_request
CREATE UNIQUE INDEX service_key_by_request ON strandline.service_key (request_key)

-- step: comment on table service_key
COMMENT ON TABLE strandline.service_key IS 'Keys of the HTTP service: what each opens, and the digest of its secret; rarely written'

-- step: table kept_response
CREATE TABLE strandline.kept_response (
	shard_key UUID NOT NULL,
	request_key UUID NOT NULL,
	session_key UUID,
	request_digest BYTEA NOT NULL,
	status SMALLINT NOT NULL,
	body JSON,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT kept_response_pkey PRIMARY KEY (shard_key, request_key)
)

-- step: index kept_response_by_age
CREATE INDEX kept_response_by_age ON strandline.kept_response (created_at)

-- step: comment on table kept_response
COMMENT ON TABLE strandline.kept_response IS 'Responses to requests with an Idempotency-Key, for a day; what an owner said may be in them'

-- step: table audit_level
CREATE TABLE strandline.audit_level (
	namespace TEXT COLLATE "C" NOT NULL,
	level TEXT NOT NULL,
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT audit_level_pkey PRIMARY KEY (namespace),
	CONSTRAINT audit_level_level_check CHECK (level IN ('off', 'changes', 'all'))
)

-- step: comment on table audit_level
COMMENT ON TABLE strandline.audit_level IS 'The level of a namespace''s audit trail; a namespace without a row has ''changes'''

-- step: table audit_subject
CREATE TABLE strandline.audit_subject (
	shard_key UUID NOT NULL,
	subject UUID NOT NULL,
	salt BYTEA NOT NULL,
	namespace TEXT COLLATE "C" NOT NULL,
	user_id TEXT,
	CONSTRAINT audit_subject_pkey PRIMARY KEY (shard_key)
)

-- step: index audit_subject_by_subject
CREATE INDEX audit_subject_by_subject ON strandline.audit_subject (subject)

-- step: comment on table audit_subject
COMMENT ON TABLE strandline.audit_subject IS 'The random pseudonym of an owner in the audit trail, until erasure deletes the row'

-- step: table audit_entry
CREATE TABLE strandline.audit_entry (
	shard_key UUID NOT NULL,
	entry_id UUID NOT NULL,
	namespace TEXT COLLATE "C" NOT NULL,
	act TEXT NOT NULL,
	actor TEXT,
	origin TEXT,
	subject UUID,
	session UUID,
	seq BIGINT,
	count BIGINT,
	detail JSON,
	flags TEXT[] DEFAULT '{}' NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT audit_entry_pkey PRIMARY KEY (shard_key, entry_id)
)

-- step: comment on table audit_entry
COMMENT ON TABLE strandline.audit_entry IS 'Acts that no seal covers yet, under the key of whom they concern, until the sealer takes them'

-- step: table audit_chain
CREATE TABLE strandline.audit_chain (
	shard_key UUID NOT NULL,
	namespace TEXT COLLATE "C" NOT NULL,
	seals BIGINT DEFAULT '0' NOT NULL,
	pruned_seals BIGINT DEFAULT '0' NOT NULL,
	entries BIGINT DEFAULT '0' NOT NULL,
	CONSTRAINT audit_chain_pkey PRIMARY KEY (shard_key),
	CONSTRAINT audit_chain_pruned_check CHECK (pruned_seals BETWEEN 0 AND seals)
)

-- step: comment on table audit_chain
COMMENT ON TABLE strandline.audit_chain IS 'A namespace''s chain: how many seals it has; the row that sealers lock'

-- step: table audit_seal
CREATE TABLE strandline.audit_seal (
	shard_key UUID NOT NULL,
	number BIGINT NOT NULL,
	entries INTEGER NOT NULL,
	entries_before BIGINT NOT NULL,
	entry_ids UUID[] NOT NULL,
	leaves BYTEA NOT NULL,
	root BYTEA NOT NULL,
	previous BYTEA NOT NULL,
	key_id TEXT NOT NULL,
	mac BYTEA NOT NULL,
	sealed_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT audit_seal_pkey PRIMARY KEY (shard_key, number),
	CONSTRAINT audit_seal_entries_check CHECK (entries >= 1 AND cardinality(entry_ids) = entries)
)

-- step: comment on table audit_seal
COMMENT ON TABLE strandline.audit_seal IS 'A link of a namespace''s chain: the Merkle root of its entries, with a MAC over the link before'

-- step: table audit_sealed
CREATE TABLE strandline.audit_sealed (
	shard_key UUID NOT NULL,
	seal BIGINT NOT NULL,
	place INTEGER NOT NULL,
	entry_id UUID NOT NULL,
	act TEXT NOT NULL,
	actor TEXT,
	origin TEXT,
	origin_digest BYTEA,
	subject UUID,
	session UUID,
	seq BIGINT,
	count BIGINT,
	detail JSON,
	flags TEXT[] DEFAULT '{}' NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT audit_sealed_pkey PRIMARY KEY (shard_key, seal, place)
)

-- step: index audit_sealed_by_subject
CREATE INDEX audit_sealed_by_subject ON strandline.audit_sealed (shard_key, subject) WHERE subject IS NOT NULL

-- step: comment on table audit_sealed
COMMENT ON TABLE strandline.audit_sealed IS 'Acts that a seal covers, in the order of the chain, under the key of their namespace''s chain'

-- step: table fact_candidate
CREATE TABLE strandline.fact_candidate (
	shard_key UUID NOT NULL,
	generation_id INTEGER NOT NULL,
	event_id UUID NOT NULL,
	ordinal INTEGER NOT NULL,
	session_key UUID NOT NULL,
	batch_id UUID NOT NULL,
	text TEXT NOT NULL,
	fingerprint BYTEA NOT NULL,
	seqs BIGINT[] NOT NULL,
	topics TEXT[] NOT NULL,
	said_by TEXT,
	about_date DATE,
	said_at TIMESTAMP WITH TIME ZONE NOT NULL,
	model TEXT NOT NULL,
	prompt_hash TEXT NOT NULL,
	dropped_by BIGINT,
	withheld_by BIGINT,
	CONSTRAINT fact_candidate_pkey PRIMARY KEY (shard_key, generation_id, event_id, ordinal)
)

-- step: comment on table fact_candidate
COMMENT ON TABLE strandline.fact_candidate IS 'A candidate that extract found in one event; merge applies it, unless a person''s event drops it'

-- step: table fact
CREATE TABLE strandline.fact (
	shard_key UUID NOT NULL,
	generation_id INTEGER NOT NULL,
	fact_id UUID NOT NULL,
	text TEXT NOT NULL,
	fingerprint BYTEA NOT NULL,
	lexemes TEXT[] NOT NULL,
	topics TEXT[] NOT NULL,
	said_by TEXT,
	about_date DATE,
	said_at TIMESTAMP WITH TIME ZONE NOT NULL,
	valid_from TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	valid_until TIMESTAMP WITH TIME ZONE,
	live BOOLEAN DEFAULT true NOT NULL,
	invalidated_at TIMESTAMP WITH TIME ZONE,
	invalidated_by UUID,
	condensed_into UUID,
	input TEXT,
	agent_id TEXT,
	team_id TEXT,
	feedback TEXT,
	doubt_operation TEXT,
	doubt_reason TEXT,
	doubt_fact_id UUID,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT fact_pkey PRIMARY KEY (shard_key, generation_id, fact_id),
	CONSTRAINT fact_live_check CHECK (live = (invalidated_at IS NULL AND condensed_into IS NULL)),
	CONSTRAINT fact_doubt_check CHECK (num_nulls(doubt_operation, doubt_reason, doubt_fact_id) IN (0, 3))
)

-- step: index fact_recent
CREATE INDEX fact_recent ON strandline.fact (shard_key, generation_id, said_at DESC) WHERE live

-- step: unique index fact_fingerprint
CREATE UNIQUE INDEX fact_fingerprint ON strandline.fact (shard_key, generation_id, fingerprint) WHERE live

-- step: comment on table fact
COMMENT ON TABLE strandline.fact IS 'The facts of an owner; an invalidated fact stays, with the fact that replaced it'

-- step: table fact_revision
CREATE TABLE strandline.fact_revision (
	shard_key UUID NOT NULL,
	generation_id INTEGER NOT NULL,
	fact_id UUID NOT NULL,
	revision INTEGER NOT NULL,
	operation TEXT NOT NULL,
	text TEXT NOT NULL,
	fingerprint BYTEA NOT NULL,
	lexemes TEXT[] NOT NULL,
	own_text TEXT,
	own_fingerprint BYTEA,
	own_lexemes TEXT[],
	event_id UUID,
	session_key UUID,
	seqs BIGINT[] NOT NULL,
	extract_batch_id UUID,
	merge_batch_id UUID,
	condense_batch_id UUID,
	fact_event BIGINT,
	model TEXT,
	prompt_hash TEXT,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT fact_revision_pkey PRIMARY KEY (shard_key, generation_id, fact_id, revision),
	CONSTRAINT fact_revision_operation_check CHECK (operation IN ('add', 'update', 'invalidate', 'duplicate', 'replace', 'condense')),
	CONSTRAINT fact_revision_source_check CHECK (num_nulls(event_id, session_key, extract_batch_id, merge_batch_id, model, prompt_hash) = CASE WHEN fact_event IS NULL THEN 0 ELSE 6 END AND (condense_batch_id IS NOT NULL) = (operation = 'condense')),
	CONSTRAINT fact_revision_own_check CHECK (num_nulls(own_text, own_fingerprint, own_lexemes) IN (0, 3))
)

-- step: comment on table fact_revision
COMMENT ON TABLE strandline.fact_revision IS 'A fact''s history and provenance: which messages, prompt and model, or which person, did what'

-- step: table fact_event
CREATE TABLE strandline.fact_event (
	shard_key UUID NOT NULL,
	number BIGINT NOT NULL,
	kind TEXT NOT NULL,
	fact_id UUID,
	payload JSON,
	traces JSONB DEFAULT '[]'::jsonb NOT NULL,
	waiting JSONB DEFAULT '[]'::jsonb NOT NULL,
	actor TEXT,
	instruction UUID,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT fact_event_pkey PRIMARY KEY (shard_key, number),
	CONSTRAINT fact_event_kind_check CHECK (kind IN ('add', 'replace', 'delete', 'clear', 'feedback')),
	CONSTRAINT fact_event_fact_check CHECK ((fact_id IS NULL) = (kind = 'clear'))
)

-- step: comment on table fact_event
COMMENT ON TABLE strandline.fact_event IS 'The changes that people made to an owner''s facts, in order; they outlive every derivation'

-- step: table former_fact
CREATE TABLE strandline.former_fact (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	fact_id UUID NOT NULL,
	seqs BIGINT[] NOT NULL,
	fingerprints BYTEA[] NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT former_fact_pkey PRIMARY KEY (shard_key, session_key, fact_id)
)

-- step: comment on table former_fact
COMMENT ON TABLE strandline.former_fact IS 'The messages and words of facts that went, by which their successors are found'

-- step: table fact_owner
CREATE TABLE strandline.fact_owner (
	shard_key UUID NOT NULL,
	namespace TEXT NOT NULL,
	user_id TEXT,
	CONSTRAINT fact_owner_pkey PRIMARY KEY (shard_key)
)

-- step: index fact_owner_by_user
CREATE INDEX fact_owner_by_user ON strandline.fact_owner (namespace, user_id)

-- step: comment on table fact_owner
COMMENT ON TABLE strandline.fact_owner IS 'The namespace of an owner whom people gave facts, even without any session'

-- step: table condensation
CREATE TABLE strandline.condensation (
	shard_key UUID NOT NULL,
	generation_id INTEGER NOT NULL,
	batch_id UUID NOT NULL,
	outcome TEXT NOT NULL,
	facts_before INTEGER NOT NULL,
	facts_after INTEGER NOT NULL,
	reason TEXT,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT condensation_pkey PRIMARY KEY (shard_key, generation_id, batch_id),
	CONSTRAINT condensation_outcome_check CHECK (outcome IN ('applied', 'unchanged', 'refused'))
)

-- step: comment on table condensation
COMMENT ON TABLE strandline.condensation IS 'Each attempt to condense an owner''s facts, and its outcome'

-- step: table block_state
CREATE TABLE strandline.block_state (
	shard_key UUID NOT NULL,
	scope_key UUID NOT NULL,
	generation_id INTEGER NOT NULL,
	ordinal BIGINT NOT NULL,
	through_seq BIGINT NOT NULL,
	state JSONB NOT NULL,
	batch_id UUID NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT block_state_pkey PRIMARY KEY (shard_key, scope_key, generation_id, ordinal)
)

-- step: unique index block_state_by_batch
CREATE UNIQUE INDEX block_state_by_batch ON strandline.block_state (shard_key, batch_id)

-- step: comment on table block_state
COMMENT ON TABLE strandline.block_state IS 'The state of an ordered lane after each batch, numbered; the newest one serves'

-- step: table chunk
CREATE TABLE strandline.chunk (
	shard_key UUID NOT NULL,
	generation_id INTEGER NOT NULL,
	session_key UUID NOT NULL,
	from_seq BIGINT NOT NULL,
	piece INTEGER NOT NULL,
	through_seq BIGINT NOT NULL,
	event_id UUID NOT NULL,
	batch_id UUID NOT NULL,
	length INTEGER NOT NULL,
	lexemes TSVECTOR NOT NULL,
	embedding HALFVEC,
	code BIT VARYING GENERATED ALWAYS AS (strandline.search_code_v1(embedding)) STORED,
	role TEXT DEFAULT '' NOT NULL,
	speaker TEXT[] DEFAULT '{}' NOT NULL,
	tone SMALLINT DEFAULT 0 NOT NULL,
	said_on DATE,
	CONSTRAINT chunk_pkey PRIMARY KEY (shard_key, generation_id, session_key, from_seq, piece) INCLUDE (through_seq, code)
)
-- divided

-- step: index chunk_terms
CREATE INDEX chunk_terms ON strandline.chunk USING gin (strandline.search_terms_v1(shard_key, generation_id, lexemes)) WITH (gin_pending_list_limit = 64)

-- step: comment on table chunk
COMMENT ON TABLE strandline.chunk IS 'A searchable piece of conversation: its messages by range, its lexemes and its vector'

-- step: table derived_change
CREATE TABLE strandline.derived_change (
	shard_key UUID NOT NULL,
	kind TEXT NOT NULL,
	change_id BIGINT NOT NULL,
	changed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT derived_change_pkey PRIMARY KEY (shard_key, kind, change_id)
)

-- step: comment on table derived_change
COMMENT ON TABLE strandline.derived_change IS 'The last transactions that changed an owner''s pieces, or facts; nothing in memory outlives one'

-- step: table shared_session
CREATE TABLE strandline.shared_session (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	incarnation UUID NOT NULL,
	owner_key UUID NOT NULL,
	session_id TEXT,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	gone_at TIMESTAMP WITH TIME ZONE,
	CONSTRAINT shared_session_pkey PRIMARY KEY (shard_key, session_key, incarnation)
)

-- step: index shared_session_by_owner
CREATE INDEX shared_session_by_owner ON strandline.shared_session (owner_key, session_key)

-- step: comment on table shared_session
COMMENT ON TABLE strandline.shared_session IS 'Incarnations of sessions that share with a scope; one that is gone was forgotten and is never shared again'

-- step: table shared_message
CREATE TABLE strandline.shared_message (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	seq BIGINT NOT NULL,
	incarnation UUID NOT NULL,
	id TEXT NOT NULL,
	role TEXT NOT NULL,
	tokens INTEGER NOT NULL,
	envelope JSON NOT NULL,
	metadata JSON,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT shared_message_pkey PRIMARY KEY (shard_key, session_key, seq)
)

-- step: comment on table shared_message
COMMENT ON TABLE strandline.shared_message IS 'Copies of what sessions shared with a scope, as searches of the scope show them'

-- step: table erasure_fence
CREATE TABLE strandline.erasure_fence (
	shard_key UUID NOT NULL,
	scope_key UUID NOT NULL,
	number INTEGER NOT NULL,
	fenced_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	readmitted_at TIMESTAMP WITH TIME ZONE,
	data_keys INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT erasure_fence_pkey PRIMARY KEY (shard_key, scope_key)
)

-- step: index erasure_fence_by_number
CREATE INDEX erasure_fence_by_number ON strandline.erasure_fence (number)

-- step: comment on table erasure_fence
COMMENT ON TABLE strandline.erasure_fence IS 'Owners and sessions that were erased: nothing is written for them until they are readmitted'

-- step: table erasure
CREATE TABLE strandline.erasure (
	number INTEGER NOT NULL,
	erasure_id UUID NOT NULL,
	kind TEXT NOT NULL,
	namespace TEXT NOT NULL,
	owner_key UUID NOT NULL,
	scope_key UUID NOT NULL,
	ledger_key UUID NOT NULL,
	state TEXT DEFAULT 'running' NOT NULL,
	steps JSONB DEFAULT '{}'::jsonb NOT NULL,
	actor TEXT,
	receipt TEXT,
	rows_erased BIGINT DEFAULT '0' NOT NULL,
	missed TEXT[] DEFAULT '{}' NOT NULL,
	requested_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	fenced_at TIMESTAMP WITH TIME ZONE,
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	finished_at TIMESTAMP WITH TIME ZONE,
	CONSTRAINT erasure_pkey PRIMARY KEY (number),
	CONSTRAINT erasure_kind_check CHECK (kind IN ('user', 'session', 'readmission')),
	CONSTRAINT erasure_state_check CHECK (state IN ('running', 'done')),
	CONSTRAINT erasure_finished_at_check CHECK ((finished_at IS NULL) = (state = 'running')),
	CONSTRAINT erasure_erasure_id_key UNIQUE (erasure_id)
)

-- step: index erasure_by_owner
CREATE INDEX erasure_by_owner ON strandline.erasure (owner_key, scope_key, number)

-- step: comment on table erasure
COMMENT ON TABLE strandline.erasure IS 'Each erasure, with its steps and its receipt, and each readmission; none of them holds a name'

-- step: table namespace_limit
CREATE TABLE strandline.namespace_limit (
	namespace TEXT COLLATE "C" NOT NULL,
	max_lanes INTEGER,
	max_lanes_per_worker INTEGER,
	calls_per_day BIGINT,
	tokens_per_day BIGINT,
	usd_per_day DOUBLE PRECISION,
	agents_read_only BOOLEAN,
	max_sessions BIGINT,
	max_bytes BIGINT,
	waits_until TIMESTAMP WITH TIME ZONE,
	waits_for TEXT,
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT namespace_limit_pkey PRIMARY KEY (namespace),
	CONSTRAINT namespace_limit_lanes_check CHECK (max_lanes >= 1 AND max_lanes_per_worker >= 1),
	CONSTRAINT namespace_limit_budgets_check CHECK (calls_per_day >= 0 AND tokens_per_day >= 0 AND usd_per_day >= 0),
	CONSTRAINT namespace_limit_agents_check CHECK (agents_read_only),
	CONSTRAINT namespace_limit_bounds_check CHECK (max_sessions >= 0 AND max_bytes >= 0),
	CONSTRAINT namespace_limit_waits_check CHECK ((waits_until IS NULL) = (waits_for IS NULL))
)

-- step: comment on table namespace_limit
COMMENT ON TABLE strandline.namespace_limit IS 'The limits of a namespace, and until when its work waits; written by hand'

-- step: table namespace_rule
CREATE TABLE strandline.namespace_rule (
	namespace TEXT COLLATE "C" NOT NULL,
	sessions BIGINT DEFAULT '0' NOT NULL,
	bytes BIGINT DEFAULT '0' NOT NULL,
	is_full BOOLEAN DEFAULT 'false' NOT NULL,
	count_at TIMESTAMP WITH TIME ZONE,
	records_puts BOOLEAN DEFAULT 'false' NOT NULL,
	least_ttl_seconds BIGINT,
	CONSTRAINT namespace_rule_pkey PRIMARY KEY (namespace)
)

-- step: comment on table namespace_rule
COMMENT ON TABLE strandline.namespace_rule IS 'The rules and the use of a namespace, which each of its puts reads'

-- step: table budget_slice
CREATE TABLE strandline.budget_slice (
	namespace TEXT COLLATE "C" NOT NULL,
	day DATE NOT NULL,
	worker_id UUID NOT NULL,
	calls_used BIGINT DEFAULT '0' NOT NULL,
	calls_granted BIGINT DEFAULT '0' NOT NULL,
	tokens_used BIGINT DEFAULT '0' NOT NULL,
	tokens_granted BIGINT DEFAULT '0' NOT NULL,
	usd_used DOUBLE PRECISION DEFAULT '0' NOT NULL,
	usd_granted DOUBLE PRECISION DEFAULT '0' NOT NULL,
	expires_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT budget_slice_pkey PRIMARY KEY (namespace, day, worker_id)
)
 WITH (fillfactor = 70)

-- step: index budget_slice_by_day
CREATE INDEX budget_slice_by_day ON strandline.budget_slice (day)

-- step: comment on table budget_slice
COMMENT ON TABLE strandline.budget_slice IS 'The slices that each worker has taken of a namespace''s budget of a day (UTC)'

-- step: table capture_act
CREATE TABLE strandline.capture_act (
	namespace TEXT COLLATE "C" NOT NULL,
	number BIGINT NOT NULL,
	owner_key UUID,
	capture JSON NOT NULL,
	actor TEXT,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT capture_act_pkey PRIMARY KEY (namespace, number)
)

-- step: index capture_act_by_owner
CREATE INDEX capture_act_by_owner ON strandline.capture_act (namespace, owner_key, number)

-- step: comment on table capture_act
COMMENT ON TABLE strandline.capture_act IS 'Numbered acts on capturing: the choice of a namespace or of one owner in it; none is changed'

-- step: table session_owner
CREATE TABLE strandline.session_owner (
	shard_key UUID NOT NULL,
	namespace TEXT NOT NULL,
	session_id TEXT NOT NULL,
	user_id TEXT,
	owner_key UUID NOT NULL,
	kind TEXT DEFAULT 'chat' NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT session_owner_pkey PRIMARY KEY (shard_key),
	CONSTRAINT session_owner_kind_check CHECK (kind IN ('chat', 'source', 'instruction'))
)

-- step: index session_owner_by_name
CREATE INDEX session_owner_by_name ON strandline.session_owner (namespace, session_id)

-- step: index session_owner_by_user
CREATE INDEX session_owner_by_user ON strandline.session_owner (namespace, user_id, session_id)

-- step: comment on table session_owner
COMMENT ON TABLE strandline.session_owner IS 'Directory: the owner of each session id; written once, before the session''s first put'

-- step: table session
CREATE TABLE strandline.session (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	incarnation UUID DEFAULT gen_random_uuid() NOT NULL,
	next_seq BIGINT DEFAULT '1' NOT NULL,
	log_start_seq BIGINT DEFAULT '1' NOT NULL,
	first_kept BIGINT,
	pinned_through BIGINT DEFAULT '0' NOT NULL,
	window_from BIGINT DEFAULT '1' NOT NULL,
	flushed_through BIGINT DEFAULT '0' NOT NULL,
	question_seqs BIGINT[],
	pinned_tokens BIGINT DEFAULT '0' NOT NULL,
	window_tokens BIGINT DEFAULT '0' NOT NULL,
	window_messages INTEGER DEFAULT '0' NOT NULL,
	window_bytes BIGINT DEFAULT '0' NOT NULL,
	replan_at_tokens BIGINT DEFAULT '0' NOT NULL,
	corrections INTEGER DEFAULT '0' NOT NULL,
	token_limit INTEGER NOT NULL,
	flush_at_tokens INTEGER NOT NULL,
	token_flush_size INTEGER NOT NULL,
	max_window_messages INTEGER NOT NULL,
	max_window_bytes INTEGER NOT NULL,
	message_flush_size INTEGER,
	deliver TEXT DEFAULT 'window' NOT NULL,
	time_zone TEXT,
	prompts BIGINT[],
	idle_seconds INTEGER,
	last_put_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	watched_until TIMESTAMP WITH TIME ZONE,
	overdue_at TIMESTAMP WITH TIME ZONE,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	namespace TEXT NOT NULL,
	session_id TEXT NOT NULL,
	user_id TEXT,
	tokenizer TEXT NOT NULL,
	pipelines TEXT[] NOT NULL,
	max_facts INTEGER,
	shared_scope TEXT,
	shared_key UUID,
	first_data_key INTEGER DEFAULT 0 NOT NULL,
	CONSTRAINT session_pkey PRIMARY KEY (shard_key, session_key)
)
 WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.02)

-- step: index session_by_pipelines
CREATE INDEX session_by_pipelines ON strandline.session (pipelines)

-- step: index session_by_zone
CREATE INDEX session_by_zone ON strandline.session (shard_key, created_at) WHERE time_zone IS NOT NULL

-- step: comment on table session
COMMENT ON TABLE strandline.session IS 'One conversation: its marks, its token count and its policy'

-- step: table policy_change
CREATE TABLE strandline.policy_change (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	number INTEGER NOT NULL,
	before JSONB NOT NULL,
	after JSONB NOT NULL,
	flushed_through BIGINT NOT NULL,
	actor TEXT,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT policy_change_pkey PRIMARY KEY (shard_key, session_key, number)
)

-- step: comment on table policy_change
COMMENT ON TABLE strandline.policy_change IS 'How a session''s policy was changed, by whom, and through which message the one before held'

-- step: table message
CREATE TABLE strandline.message (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	seq BIGINT NOT NULL,
	incarnation UUID NOT NULL,
	id TEXT NOT NULL,
	role TEXT NOT NULL,
	tokens INTEGER NOT NULL,
	bytes INTEGER NOT NULL,
	digest BYTEA NOT NULL,
	envelope JSON NOT NULL,
	metadata JSON,
	calls JSON,
	answers JSON,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	labels BIGINT[],
	CONSTRAINT message_pkey PRIMARY KEY (shard_key, session_key, seq),
	CONSTRAINT message_role_check CHECK (role IN ('system', 'developer', 'user', 'assistant', 'tool')),
	CONSTRAINT message_tokens_check CHECK (tokens >= 0)
)
-- divided

-- step: index message_by_label
CREATE INDEX message_by_label ON strandline.message USING gin (labels) WITH (gin_pending_list_limit = 64) WHERE labels IS NOT NULL

-- step: index message_by_role
CREATE INDEX message_by_role ON strandline.message (strandline.role_key_v1(session_key, role), created_at)

-- step: index message_by_system
CREATE INDEX message_by_system ON strandline.message (shard_key, session_key, seq) WHERE role IN ('system', 'developer')

-- step: unique index message_by_id
CREATE UNIQUE INDEX message_by_id ON strandline.message (shard_key, incarnation, id)

-- step: comment on table message
COMMENT ON TABLE strandline.message IS 'The append-only log: no row is ever updated'

-- step: table popped
CREATE TABLE strandline.popped (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	seq BIGINT NOT NULL,
	pop_id UUID NOT NULL,
	popped_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT popped_pkey PRIMARY KEY (shard_key, session_key, seq)
)

-- step: comment on table popped
COMMENT ON TABLE strandline.popped IS 'The numbers of messages that were removed from the log again'

-- step: table correction
CREATE TABLE strandline.correction (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	number INTEGER NOT NULL,
	correction_id UUID NOT NULL,
	incarnation UUID NOT NULL,
	kind TEXT NOT NULL,
	from_seq BIGINT NOT NULL,
	through_seq BIGINT NOT NULL,
	digest BYTEA,
	actor TEXT,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT correction_pkey PRIMARY KEY (shard_key, session_key, number),
	CONSTRAINT correction_kind_check CHECK (kind IN ('rewind', 'replace')),
	CONSTRAINT correction_digest_check CHECK ((digest IS NULL) = (kind = 'rewind')),
	CONSTRAINT correction_range_check CHECK (number >= 1 AND through_seq >= from_seq)
)

-- step: unique index correction_by_id
CREATE UNIQUE INDEX correction_by_id ON strandline.correction (shard_key, correction_id)

-- step: comment on table correction
COMMENT ON TABLE strandline.correction IS 'How a session''s log was corrected, by whom and when; none of what was taken back'

-- step: table superseded
CREATE TABLE strandline.superseded (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	seq BIGINT NOT NULL,
	number INTEGER NOT NULL,
	tokens INTEGER NOT NULL,
	was_delivered BOOLEAN NOT NULL,
	CONSTRAINT superseded_pkey PRIMARY KEY (shard_key, session_key, seq, number)
)

-- step: comment on table superseded
COMMENT ON TABLE strandline.superseded IS 'Each message that a correction took back or replaced, without content'

-- step: table session_run
CREATE TABLE strandline.session_run (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	run_id TEXT NOT NULL,
	number INTEGER NOT NULL,
	status TEXT NOT NULL,
	agent_id TEXT,
	team_id TEXT,
	seqs BIGINT[] NOT NULL,
	digests BYTEA[] NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	changed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT session_run_pkey PRIMARY KEY (shard_key, session_key, run_id),
	CONSTRAINT session_run_status_check CHECK (status IN ('pending', 'running', 'paused', 'completed', 'cancelled', 'error')),
	CONSTRAINT session_run_number_check CHECK (number >= 1),
	CONSTRAINT session_run_digests_check CHECK (cardinality(seqs) = cardinality(digests))
)

-- step: unique index session_run_by_number
CREATE UNIQUE INDEX session_run_by_number ON strandline.session_run (shard_key, session_key, number)

-- step: comment on table session_run
COMMENT ON TABLE strandline.session_run IS 'The runs of agents in a session: which messages each of them brought, and how it ended'

-- step: table flush_event
CREATE TABLE strandline.flush_event (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	from_seq BIGINT NOT NULL,
	through_seq BIGINT NOT NULL,
	event_id UUID NOT NULL,
	incarnation UUID NOT NULL,
	cause TEXT NOT NULL,
	message_count INTEGER NOT NULL,
	tokens BIGINT NOT NULL,
	version SMALLINT NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	traceparent TEXT,
	CONSTRAINT flush_event_pkey PRIMARY KEY (shard_key, session_key, from_seq),
	CONSTRAINT flush_event_cause_check CHECK (cause IN ('threshold', 'idle', 'turn', 'manual', 'import', 'source', 'instruction')),
	CONSTRAINT flush_event_range_check CHECK (through_seq >= from_seq),
	CONSTRAINT flush_event_traceparent_check CHECK (traceparent ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$')
)

-- step: index flush_event_by_time
CREATE INDEX flush_event_by_time ON strandline.flush_event (created_at)

-- step: unique index flush_event_by_id
CREATE UNIQUE INDEX flush_event_by_id ON strandline.flush_event (shard_key, event_id)

-- step: comment on table flush_event
COMMENT ON TABLE strandline.flush_event IS 'The outbox: one immutable row per flush'

-- step: table watch
CREATE TABLE strandline.watch (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	watch_id UUID DEFAULT gen_random_uuid() NOT NULL,
	cause TEXT NOT NULL,
	check_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT watch_pkey PRIMARY KEY (shard_key, session_key, watch_id),
	CONSTRAINT watch_cause_check CHECK (cause IN ('idle', 'overdue'))
)

-- step: index watch_by_time
CREATE INDEX watch_by_time ON strandline.watch (check_at)

-- step: comment on table watch
COMMENT ON TABLE strandline.watch IS 'When the sweep is to look at a session: once per idle period, and after a crossing'

-- step: table retention_act
CREATE TABLE strandline.retention_act (
	namespace TEXT COLLATE "C" NOT NULL,
	number BIGINT NOT NULL,
	ttl_seconds BIGINT,
	max_age_seconds BIGINT,
	max_messages BIGINT,
	forget_facts BOOLEAN,
	archive TEXT,
	keeps_important BOOLEAN,
	ages JSONB DEFAULT '{}'::jsonb NOT NULL,
	actor TEXT,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT retention_act_pkey PRIMARY KEY (namespace, number),
	CONSTRAINT retention_act_bounds_check CHECK (ttl_seconds >= 0 AND max_age_seconds >= 0 AND max_messages >= 0)
)

-- step: comment on table retention_act
COMMENT ON TABLE strandline.retention_act IS 'Numbered acts on retention in a namespace; none is changed, and the newest one applies'

-- step: table session_retention_act
CREATE TABLE strandline.session_retention_act (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	number BIGINT NOT NULL,
	ttl_seconds BIGINT,
	max_age_seconds BIGINT,
	max_messages BIGINT,
	forget_facts BOOLEAN,
	archive TEXT,
	tightened TEXT[] DEFAULT '{}' NOT NULL,
	actor TEXT,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT session_retention_act_pkey PRIMARY KEY (shard_key, session_key, number),
	CONSTRAINT session_retention_act_bounds_check CHECK (ttl_seconds >= 0 AND max_age_seconds >= 0 AND max_messages >= 0)
)

-- step: comment on table session_retention_act
COMMENT ON TABLE strandline.session_retention_act IS 'The same of one session; what an act leaves open is as its namespace''s act says'

-- step: table expired_life
CREATE TABLE strandline.expired_life (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	incarnation UUID NOT NULL,
	from_seq BIGINT NOT NULL,
	through_seq BIGINT NOT NULL,
	pinned_through BIGINT NOT NULL,
	flushed_through BIGINT NOT NULL,
	expired_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	removed_at TIMESTAMP WITH TIME ZONE,
	CONSTRAINT expired_life_pkey PRIMARY KEY (shard_key, session_key, incarnation)
)

-- step: index expired_life_waiting
CREATE INDEX expired_life_waiting ON strandline.expired_life (shard_key, session_key) WHERE removed_at IS NULL

-- step: comment on table expired_life
COMMENT ON TABLE strandline.expired_life IS 'Lives of sessions that ended for want of puts: no read shows them, their work goes on'

-- step: table retention_step
CREATE TABLE strandline.retention_step (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	from_seq BIGINT NOT NULL,
	through_seq BIGINT NOT NULL,
	step_id UUID NOT NULL,
	incarnation UUID NOT NULL,
	cause TEXT NOT NULL,
	state TEXT DEFAULT 'planned' NOT NULL,
	forget_facts BOOLEAN DEFAULT false NOT NULL,
	archive TEXT,
	object_name TEXT,
	object_digest TEXT,
	rows_digest TEXT,
	messages INTEGER DEFAULT '0' NOT NULL,
	removed INTEGER DEFAULT '0' NOT NULL,
	kept_seqs BIGINT[] DEFAULT '{}'::bigint[] NOT NULL,
	attempts INTEGER DEFAULT '0' NOT NULL,
	last_error TEXT,
	acts BIGINT[] DEFAULT '{}'::bigint[] NOT NULL,
	planned_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	attempted_at TIMESTAMP WITH TIME ZONE,
	failed_at TIMESTAMP WITH TIME ZONE,
	archived_at TIMESTAMP WITH TIME ZONE,
	read_back_at TIMESTAMP WITH TIME ZONE,
	removed_at TIMESTAMP WITH TIME ZONE,
	CONSTRAINT retention_step_pkey PRIMARY KEY (shard_key, session_key, from_seq),
	CONSTRAINT retention_step_state_check CHECK (state IN ('planned', 'archived', 'read_back', 'removed')),
	CONSTRAINT retention_step_cause_check CHECK (cause IN ('ttl', 'age', 'number')),
	CONSTRAINT retention_step_range_check CHECK (through_seq >= from_seq),
	CONSTRAINT retention_step_removed_check CHECK ((state = 'removed') = (removed_at IS NOT NULL))
)

-- step: unique index retention_step_open
CREATE UNIQUE INDEX retention_step_open ON strandline.retention_step (shard_key, session_key) WHERE state <> 'removed'

-- step: comment on table retention_step
COMMENT ON TABLE strandline.retention_step IS 'Ranges of messages on their way out of the log, and those that left it: where they are archived'

-- step: table given_up_step
CREATE TABLE strandline.given_up_step (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	step_id UUID NOT NULL,
	from_seq BIGINT NOT NULL,
	through_seq BIGINT NOT NULL,
	cause TEXT NOT NULL,
	state TEXT NOT NULL,
	archive TEXT,
	object_name TEXT,
	reason TEXT NOT NULL,
	given_up_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	tried_at TIMESTAMP WITH TIME ZONE,
	deleted_at TIMESTAMP WITH TIME ZONE,
	CONSTRAINT given_up_step_pkey PRIMARY KEY (shard_key, session_key, step_id)
)

-- step: comment on table given_up_step
COMMENT ON TABLE strandline.given_up_step IS 'Steps that were given up having removed nothing, and what they left in archives'

-- step: table retention_run
CREATE TABLE strandline.retention_run (
	run_id INTEGER GENERATED ALWAYS AS IDENTITY,
	namespace TEXT COLLATE "C",
	state TEXT DEFAULT 'running' NOT NULL,
	position_shard UUID,
	position_session UUID,
	counts JSONB DEFAULT '{}'::jsonb NOT NULL,
	started_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	ended_at TIMESTAMP WITH TIME ZONE,
	CONSTRAINT retention_run_pkey PRIMARY KEY (run_id),
	CONSTRAINT retention_run_state_check CHECK (state IN ('running', 'done'))
)

-- step: comment on table retention_run
COMMENT ON TABLE strandline.retention_run IS 'Each pass over all sessions: how far it is, and what it did'

-- step: table archived_input
CREATE TABLE strandline.archived_input (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	seq BIGINT NOT NULL,
	generation_id INTEGER NOT NULL,
	id TEXT NOT NULL,
	role TEXT NOT NULL,
	tokens INTEGER NOT NULL,
	envelope JSON NOT NULL,
	metadata JSON,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT archived_input_pkey PRIMARY KEY (shard_key, session_key, seq, generation_id)
)

-- step: comment on table archived_input
COMMENT ON TABLE strandline.archived_input IS 'Messages from the archive that a new derivation is made of; no read shows them'

-- step: table generation
CREATE TABLE strandline.generation (
	generation_id INTEGER GENERATED ALWAYS AS IDENTITY,
	pipeline TEXT NOT NULL,
	version TEXT NOT NULL,
	state TEXT NOT NULL,
	entry_stage TEXT NOT NULL,
	entry_scope TEXT DEFAULT 'session' NOT NULL,
	config JSONB DEFAULT '{}'::jsonb NOT NULL,
	prompts JSONB DEFAULT '{}'::jsonb NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	fed_since TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp(),
	backfilled_through UUID,
	served_until TIMESTAMP WITH TIME ZONE,
	state_since TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT generation_pkey PRIMARY KEY (generation_id),
	CONSTRAINT generation_state_check CHECK (state IN ('preparing', 'feeding', 'serving', 'retired')),
	CONSTRAINT generation_fed_since_check CHECK ((fed_since IS NULL) = (state = 'preparing') OR state = 'retired'),
	CONSTRAINT generation_entry_scope_check CHECK (entry_scope IN ('session', 'owner'))
)

-- step: unique index generation_serving
CREATE UNIQUE INDEX generation_serving ON strandline.generation (pipeline) WHERE state = 'serving'

-- step: comment on table generation
COMMENT ON TABLE strandline.generation IS 'The pipelines, the recipe of each derivation, and which one serves'

-- step: table scope_generation
CREATE TABLE strandline.scope_generation (
	shard_key UUID NOT NULL,
	pipeline TEXT NOT NULL,
	generation_id INTEGER NOT NULL,
	switched_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	paused_until TIMESTAMP WITH TIME ZONE,
	CONSTRAINT scope_generation_pkey PRIMARY KEY (shard_key, pipeline)
)

-- step: comment on table scope_generation
COMMENT ON TABLE strandline.scope_generation IS 'Owners for whom another derivation serves than for the others, until all are through'

-- step: table replay
CREATE TABLE strandline.replay (
	replay_id INTEGER GENERATED ALWAYS AS IDENTITY,
	kind TEXT NOT NULL,
	pipeline TEXT NOT NULL,
	generation_id INTEGER NOT NULL,
	selection JSONB DEFAULT '{}'::jsonb NOT NULL,
	state TEXT DEFAULT 'running' NOT NULL,
	held BOOLEAN DEFAULT false NOT NULL,
	position UUID,
	calls_per_second DOUBLE PRECISION,
	stop_asked BOOLEAN DEFAULT false NOT NULL,
	counts JSONB DEFAULT '{}'::jsonb NOT NULL,
	started_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT replay_pkey PRIMARY KEY (replay_id),
	CONSTRAINT replay_kind_check CHECK (kind IN ('new', 'in_place')),
	CONSTRAINT replay_state_check CHECK (state IN ('running', 'stopped', 'done'))
)

-- step: comment on table replay
COMMENT ON TABLE strandline.replay IS 'Each replay: its work and its progress'

-- step: table replay_budget
CREATE TABLE strandline.replay_budget (
	namespace TEXT NOT NULL,
	calls_left DOUBLE PRECISION NOT NULL,
	filled_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	pace TEXT,
	CONSTRAINT replay_budget_pkey PRIMARY KEY (namespace)
)

-- step: comment on table replay_budget
COMMENT ON TABLE strandline.replay_budget IS 'Model calls that may be made now, of replays by namespace, and by server; all workers share it'

-- step: table due
CREATE TABLE strandline.due (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	generation_id INTEGER NOT NULL,
	stage TEXT NOT NULL,
	from_seq BIGINT NOT NULL,
	through_seq BIGINT NOT NULL,
	scope_key UUID NOT NULL,
	event_id UUID NOT NULL,
	incarnation UUID NOT NULL,
	tokens BIGINT NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	ring_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() + interval '2 seconds' NOT NULL,
	rings INTEGER DEFAULT '0' NOT NULL,
	namespace TEXT COLLATE "C" NOT NULL,
	precedence SMALLINT DEFAULT '0' NOT NULL,
	was_applied BOOLEAN DEFAULT false NOT NULL,
	ready_at TIMESTAMP WITH TIME ZONE,
	retries SMALLINT DEFAULT '0' NOT NULL,
	CONSTRAINT due_pkey PRIMARY KEY (shard_key, session_key, generation_id, stage, from_seq)
)
 WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)

-- step: index due_by_lane
CREATE INDEX due_by_lane ON strandline.due (shard_key, scope_key, generation_id, stage, created_at)

-- step: index due_by_ring
CREATE INDEX due_by_ring ON strandline.due (stage, ring_at)

-- step: index due_by_turn
CREATE INDEX due_by_turn ON strandline.due (stage, precedence, namespace, shard_key, created_at) WHERE ring_at < 'infinity'

-- step: index due_unrung
CREATE INDEX due_unrung ON strandline.due (stage, shard_key, scope_key, generation_id) WHERE ring_at = 'infinity'

-- step: comment on table due
COMMENT ON TABLE strandline.due IS 'Work that a lane has to do: inserted by a flush (or an earlier stage), deleted by its apply'

-- step: table lane
CREATE TABLE strandline.lane (
	shard_key UUID NOT NULL,
	scope_key UUID NOT NULL,
	generation_id INTEGER NOT NULL,
	stage TEXT NOT NULL,
	lease_epoch BIGINT DEFAULT '0' NOT NULL,
	holder UUID,
	leased_at TIMESTAMP WITH TIME ZONE,
	deadline_at TIMESTAMP WITH TIME ZONE,
	next_attempt_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	postponed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	postponements INTEGER DEFAULT '0' NOT NULL,
	failures INTEGER DEFAULT '0' NOT NULL,
	crashes INTEGER DEFAULT '0' NOT NULL,
	last_error TEXT,
	namespace TEXT COLLATE "C",
	CONSTRAINT lane_pkey PRIMARY KEY (shard_key, scope_key, generation_id, stage)
)
 WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02)

-- step: index lane_held
CREATE INDEX lane_held ON strandline.lane (holder) WHERE holder IS NOT NULL

-- step: comment on table lane
COMMENT ON TABLE strandline.lane IS 'The lease of a lane: its holder, its epoch, and when it may be tried again'

-- step: table batch
CREATE TABLE strandline.batch (
	shard_key UUID NOT NULL,
	batch_id UUID NOT NULL,
	scope_key UUID NOT NULL,
	generation_id INTEGER NOT NULL,
	stage TEXT NOT NULL,
	state TEXT DEFAULT 'open' NOT NULL,
	lease_epoch BIGINT NOT NULL,
	event_ids UUID[] NOT NULL,
	context_seqs BIGINT[] DEFAULT '{}'::bigint[] NOT NULL,
	capture_number BIGINT,
	capture_hash TEXT,
	carried_from INTEGER,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	closed_at TIMESTAMP WITH TIME ZONE,
	CONSTRAINT batch_pkey PRIMARY KEY (shard_key, batch_id),
	CONSTRAINT batch_state_check CHECK (state IN ('open', 'applied', 'void', 'split', 'dead')),
	CONSTRAINT batch_events_check CHECK (cardinality(event_ids) > 0),
	CONSTRAINT batch_capture_check CHECK ((capture_number IS NULL) = (capture_hash IS NULL))
)

-- step: index batch_split
CREATE INDEX batch_split ON strandline.batch (shard_key, scope_key, generation_id, stage) WHERE state = 'split'

-- step: unique index batch_open
CREATE UNIQUE INDEX batch_open ON strandline.batch (shard_key, scope_key, generation_id, stage) WHERE state = 'open'

-- step: comment on table batch
COMMENT ON TABLE strandline.batch IS 'The events that one model call covers, fixed before the call and reused by a replay'

-- step: table answer
CREATE TABLE strandline.answer (
	shard_key UUID NOT NULL,
	batch_id UUID NOT NULL,
	step TEXT NOT NULL,
	model TEXT NOT NULL,
	prompt_hash TEXT NOT NULL,
	body BYTEA NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT answer_pkey PRIMARY KEY (shard_key, batch_id, step)
)
-- divided

-- step: comment on table answer
COMMENT ON TABLE strandline.answer IS 'A model''s raw answer, stored before it is applied; only stored answers are applied'

-- step: table model_call
CREATE TABLE strandline.model_call (
	shard_key UUID NOT NULL,
	call_id UUID NOT NULL,
	generation_id INTEGER,
	stage TEXT NOT NULL,
	batch_id UUID NOT NULL,
	step TEXT NOT NULL,
	model TEXT NOT NULL,
	prompt_hash TEXT NOT NULL,
	input_tokens BIGINT NOT NULL,
	output_tokens BIGINT NOT NULL,
	seconds DOUBLE PRECISION NOT NULL,
	cost_usd NUMERIC,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT model_call_pkey PRIMARY KEY (shard_key, call_id)
)

-- step: comment on table model_call
COMMENT ON TABLE strandline.model_call IS 'The ledger of cost, without content'

-- step: comment on column model_call.generation_id
COMMENT ON COLUMN strandline.model_call.generation_id IS 'NULL for a call that a producer made'

-- step: table receipt
CREATE TABLE strandline.receipt (
	shard_key UUID NOT NULL,
	event_id UUID NOT NULL,
	generation_id INTEGER NOT NULL,
	stage TEXT NOT NULL,
	outcome TEXT NOT NULL,
	batch_id UUID,
	applied_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT receipt_pkey PRIMARY KEY (shard_key, event_id, generation_id, stage),
	CONSTRAINT receipt_outcome_check CHECK (outcome IN ('applied', 'void', 'dead'))
)
-- divided

-- step: index receipt_by_time
CREATE INDEX receipt_by_time ON strandline.receipt (applied_at)

-- step: comment on table receipt
COMMENT ON TABLE strandline.receipt IS 'Records that an event reached its end in a stage; written in the transaction of its effect'

-- step: table dead_letter
CREATE TABLE strandline.dead_letter (
	shard_key UUID NOT NULL,
	session_key UUID NOT NULL,
	generation_id INTEGER NOT NULL,
	stage TEXT NOT NULL,
	from_seq BIGINT NOT NULL,
	through_seq BIGINT NOT NULL,
	scope_key UUID NOT NULL,
	event_id UUID NOT NULL,
	incarnation UUID NOT NULL,
	batch_id UUID NOT NULL,
	reason TEXT NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	dropped_at TIMESTAMP WITH TIME ZONE,
	retry_at TIMESTAMP WITH TIME ZONE,
	retries SMALLINT DEFAULT '0' NOT NULL,
	CONSTRAINT dead_letter_pkey PRIMARY KEY (shard_key, session_key, generation_id, stage, from_seq)
)

-- step: index dead_letter_by_retry
CREATE INDEX dead_letter_by_retry ON strandline.dead_letter (retry_at) WHERE retry_at IS NOT NULL

-- step: comment on table dead_letter
COMMENT ON TABLE strandline.dead_letter IS 'A hole: an event that a lane went past, and why; it stays in the tail until it is dropped'

-- step: table worker
CREATE TABLE strandline.worker (
	worker_id UUID NOT NULL,
	host TEXT NOT NULL,
	pid INTEGER NOT NULL,
	version TEXT NOT NULL,
	stages TEXT[] NOT NULL,
	unbuildable INTEGER[] DEFAULT '{}'::integer[] NOT NULL,
	condition JSON DEFAULT '{}'::json NOT NULL,
	started_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	heartbeat_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT worker_pkey PRIMARY KEY (worker_id)
)

-- step: comment on table worker
COMMENT ON TABLE strandline.worker IS 'One heartbeat row per worker process; every lease it holds lives by it'

-- step: columns of answer
ALTER TABLE strandline.answer ALTER COLUMN body SET STATISTICS 0

-- step: columns of archived_input
ALTER TABLE strandline.archived_input ALTER COLUMN id SET STATISTICS 0, ALTER COLUMN envelope SET STATISTICS 0, ALTER COLUMN metadata SET STATISTICS 0

-- step: columns of audit_entry
ALTER TABLE strandline.audit_entry ALTER COLUMN actor SET STATISTICS 0, ALTER COLUMN origin SET STATISTICS 0

-- step: columns of audit_sealed
ALTER TABLE strandline.audit_sealed ALTER COLUMN actor SET STATISTICS 0, ALTER COLUMN origin SET STATISTICS 0

-- step: columns of audit_subject
ALTER TABLE strandline.audit_subject ALTER COLUMN user_id SET STATISTICS 0

-- step: columns of block_state
ALTER TABLE strandline.block_state ALTER COLUMN state SET STATISTICS 0

-- step: columns of capture_act
ALTER TABLE strandline.capture_act ALTER COLUMN capture SET STATISTICS 0, ALTER COLUMN actor SET STATISTICS 0

-- step: columns of chunk
ALTER TABLE strandline.chunk ALTER COLUMN lexemes SET STATISTICS 0, ALTER COLUMN embedding SET STORAGE PLAIN, ALTER COLUMN embedding SET STATISTICS 0, ALTER COLUMN code SET STORAGE MAIN, ALTER COLUMN code SET STATISTICS 0, ALTER COLUMN speaker SET STATISTICS 0

-- step: columns of correction
ALTER TABLE strandline.correction ALTER COLUMN digest SET STATISTICS 0, ALTER COLUMN actor SET STATISTICS 0

-- step: columns of erasure
ALTER TABLE strandline.erasure ALTER COLUMN actor SET STATISTICS 0

-- step: columns of fact
ALTER TABLE strandline.fact ALTER COLUMN text SET STATISTICS 0, ALTER COLUMN fingerprint SET STATISTICS 0, ALTER COLUMN lexemes SET STATISTICS 0, ALTER COLUMN topics SET STATISTICS 0, ALTER COLUMN said_by SET STATISTICS 0, ALTER COLUMN about_date SET STATISTICS 0, ALTER COLUMN input SET STATISTICS 0, ALTER COLUMN agent_id SET STATISTICS 0, ALTER COLUMN team_id SET STATISTICS 0, ALTER COLUMN feedback SET STATISTICS 0

-- step: columns of fact_candidate
ALTER TABLE strandline.fact_candidate ALTER COLUMN text SET STATISTICS 0, ALTER COLUMN fingerprint SET STATISTICS 0, ALTER COLUMN topics SET STATISTICS 0, ALTER COLUMN said_by SET STATISTICS 0, ALTER COLUMN about_date SET STATISTICS 0

-- step: columns of fact_event
ALTER TABLE strandline.fact_event ALTER COLUMN payload SET STATISTICS 0, ALTER COLUMN traces SET STATISTICS 0, ALTER COLUMN actor SET STATISTICS 0

-- step: columns of fact_owner
ALTER TABLE strandline.fact_owner ALTER COLUMN user_id SET STATISTICS 0

-- step: columns of fact_revision
ALTER TABLE strandline.fact_revision ALTER COLUMN text SET STATISTICS 0, ALTER COLUMN fingerprint SET STATISTICS 0, ALTER COLUMN lexemes SET STATISTICS 0, ALTER COLUMN own_text SET STATISTICS 0, ALTER COLUMN own_fingerprint SET STATISTICS 0, ALTER COLUMN own_lexemes SET STATISTICS 0

-- step: columns of former_fact
ALTER TABLE strandline.former_fact ALTER COLUMN fingerprints SET STATISTICS 0

-- step: columns of kept_response
ALTER TABLE strandline.kept_response ALTER COLUMN body SET STATISTICS 0

-- step: columns of message
ALTER TABLE strandline.message ALTER COLUMN id SET STATISTICS 0, ALTER COLUMN digest SET STATISTICS 0, ALTER COLUMN envelope SET STATISTICS 0, ALTER COLUMN metadata SET STATISTICS 0, ALTER COLUMN calls SET STATISTICS 0, ALTER COLUMN answers SET STATISTICS 0, ALTER COLUMN labels SET STATISTICS 0

-- step: columns of policy_change
ALTER TABLE strandline.policy_change ALTER COLUMN before SET STATISTICS 0, ALTER COLUMN after SET STATISTICS 0, ALTER COLUMN actor SET STATISTICS 0

-- step: columns of replay
ALTER TABLE strandline.replay ALTER COLUMN selection SET STATISTICS 0

-- step: columns of retention_act
ALTER TABLE strandline.retention_act ALTER COLUMN actor SET STATISTICS 0

-- step: columns of service_key
ALTER TABLE strandline.service_key ALTER COLUMN user_id SET STATISTICS 0, ALTER COLUMN shared_scopes SET STATISTICS 0

-- step: columns of session
ALTER TABLE strandline.session ALTER COLUMN session_id SET STATISTICS 0, ALTER COLUMN user_id SET STATISTICS 0, ALTER COLUMN shared_scope SET STATISTICS 0

-- step: columns of session_owner
ALTER TABLE strandline.session_owner ALTER COLUMN session_id SET STATISTICS 0, ALTER COLUMN user_id SET STATISTICS 0

-- step: columns of session_retention_act
ALTER TABLE strandline.session_retention_act ALTER COLUMN actor SET STATISTICS 0

-- step: columns of session_run
ALTER TABLE strandline.session_run ALTER COLUMN run_id SET STATISTICS 0, ALTER COLUMN agent_id SET STATISTICS 0, ALTER COLUMN team_id SET STATISTICS 0, ALTER COLUMN digests SET STATISTICS 0

-- step: columns of shared_message
ALTER TABLE strandline.shared_message ALTER COLUMN id SET STATISTICS 0, ALTER COLUMN envelope SET STATISTICS 0, ALTER COLUMN metadata SET STATISTICS 0

-- step: columns of shared_session
ALTER TABLE strandline.shared_session ALTER COLUMN session_id SET STATISTICS 0

-- step: columns of store_item
ALTER TABLE strandline.store_item ALTER COLUMN path SET STATISTICS 0, ALTER COLUMN key SET STATISTICS 0, ALTER COLUMN value SET STATISTICS 0, ALTER COLUMN vectors SET STATISTICS 0

-- step: statistics of terms
DO $$ DECLARE part regclass; BEGIN
    FOR part IN SELECT relid FROM pg_partition_tree('strandline.chunk_terms')
        UNION SELECT 'strandline.chunk_terms'::regclass
    LOOP
        EXECUTE format('ALTER INDEX %s ALTER COLUMN 1 SET STATISTICS 0', part);
    END LOOP;
END $$

-- step: add_data_key_v1
-- function: add_data_key_v1

-- step: admit_call_v1
-- function: admit_call_v1

-- step: append_act_v1
-- function: append_act_v1

-- step: begin_batch_v1
-- function: begin_batch_v1

-- step: bring_rings_forward_v1
-- function: bring_rings_forward_v1

-- step: carry_base_v1
-- function: carry_base_v1

-- step: carry_facts_v1
-- function: carry_facts_v1

-- step: check_session_v1
-- function: check_session_v1

-- step: claim_lane_v1
-- function: claim_lane_v1

-- step: claim_session_v1
-- function: claim_session_v1

-- step: clear_shared_v1
-- function: clear_shared_v1

-- step: correct_v1
-- function: correct_v1

-- step: deliver_expired_v1
-- function: deliver_expired_v1

-- step: derive_again_v1
-- function: derive_again_v1

-- step: drop_unsourced_v1
-- function: drop_unsourced_v1

-- step: erase_directory_v1
-- function: erase_directory_v1

-- step: erase_items_v1
-- function: erase_items_v1

-- step: erase_kept_items_v1
-- function: erase_kept_items_v1

-- step: erase_names_v1
-- function: erase_names_v1

-- step: erase_rows_v1
-- function: erase_rows_v1

-- step: erase_session_v1
-- function: erase_session_v1

-- step: erase_shared_v1
-- function: erase_shared_v1

-- step: erased_rows_v1
-- function: erased_rows_v1

-- step: expire_v1
-- function: expire_v1

-- step: fence_v1
-- function: fence_v1

-- step: find_condensed_quotes_v1
-- function: find_condensed_quotes_v1

-- step: find_window_v1
-- function: find_window_v1

-- step: fits_condition_v1
-- function: fits_condition_v1

-- step: flush_v1
-- function: flush_v1

-- step: forget_facts_v1
-- function: forget_facts_v1

-- step: forget_shared_v1
-- function: forget_shared_v1

-- step: forget_traces_v1
-- function: forget_traces_v1

-- step: fork_v1
-- function: fork_v1

-- step: give_up_step_v1
-- function: give_up_step_v1

-- step: index_part_v1
-- function: index_part_v1

-- step: lock_shared_session_v1
-- function: lock_shared_session_v1

-- step: look_at_bounds_v1
-- function: look_at_bounds_v1

-- step: look_at_fence_v1
-- function: look_at_fence_v1

-- step: may_derive_v1
-- function: may_derive_v1

-- step: may_start_v1
-- function: may_start_v1

-- step: move_rows_v1
-- function: move_rows_v1

-- step: next_lane_v1
-- function: next_lane_v1

-- step: note_former_v1
-- function: note_former_v1

-- step: open_fact_lanes_v1
-- function: open_fact_lanes_v1

-- step: owner_rows_v1
-- function: owner_rows_v1

-- step: part_removed_v1
-- function: part_removed_v1

-- step: plan_removal_v1
-- function: plan_removal_v1

-- step: pop_v1
-- function: pop_v1

-- step: put_v1
-- function: put_v1

-- step: question_v1
-- function: question_v1

-- step: read_event_words_v1
-- function: read_event_words_v1

-- step: readmit_v1
-- function: readmit_v1

-- step: record_call_v1
-- function: record_call_v1

-- step: rederive_v1
-- function: rederive_v1

-- step: refold_v1
-- function: refold_v1

-- step: refresh_facts_v1
-- function: refresh_facts_v1

-- step: release_forks_v1
-- function: release_forks_v1

-- step: remove_facts_v1
-- function: remove_facts_v1

-- step: remove_messages_v1
-- function: remove_messages_v1

-- step: renew_lane_v1
-- function: renew_lane_v1

-- step: replace_quotes_v1
-- function: replace_quotes_v1

-- step: reset_v1
-- function: reset_v1

-- step: restate_facts_v1
-- function: restate_facts_v1

-- step: restore_session_v1
-- function: restore_session_v1

-- step: revive_facts_v1
-- function: revive_facts_v1

-- step: ring_due_v1
-- function: ring_due_v1

-- step: search_big_v1
-- function: search_big_v1

-- step: search_filtered_v1
-- function: search_filtered_v1

-- step: search_hits_v1
-- function: search_hits_v1

-- step: search_small_v1
-- function: search_small_v1

-- step: search_v1
-- function: search_v1

-- step: session_rows_v1
-- function: session_rows_v1

-- step: set_policy_v1
-- function: set_policy_v1

-- step: stand_alone_v1
-- function: stand_alone_v1

-- step: store_answer_v1
-- function: store_answer_v1

-- step: take_apart_v1
-- function: take_apart_v1

-- step: take_lanes_v1
-- function: take_lanes_v1

-- step: take_slice_v1
-- function: take_slice_v1

-- step: take_turn_v1
-- function: take_turn_v1

-- step: uncondense_v1
-- function: uncondense_v1

-- step: unfold_v1
-- function: unfold_v1

-- step: window_v1
-- function: window_v1

-- step: the check of sessions
CREATE TRIGGER session_check AFTER INSERT OR UPDATE OF log_start_seq, pinned_through, window_from,
    flushed_through, pinned_tokens, deliver, shared_scope, shared_key
ON strandline.session FOR EACH ROW EXECUTE FUNCTION strandline.check_session_v1()

-- step: the number
INSERT INTO strandline.alembic_version VALUES ('0001')

