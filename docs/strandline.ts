// Written by `python -m tools.typescript` from the OpenAPI document of the service; do not edit.
// Needs `fetch`, `crypto.randomUUID` and `AbortSignal.any`: Node 20.3 or newer, Deno, Bun, or a worker.

/** The messages for the next model call, and the sources of the memory in them. */
export interface ContextOut {
  session_id: string;
  messages: MessageOut[];
  tokens: number;
  token_limit: number;
  over_budget: boolean;
  caught_up: boolean;
  covered_through: Record<string, number>;
  omitted: OmissionOut[];
  facts: GivenFactOut[];
  hits: GivenMessageOut[];
  summary: GivenSummaryOut | null;
  window_from: number;
  waiting?: WaitingOut | null;
  pinned_through: number;
  prompt_seq?: number | null;
  time_zone?: string | null;
}

/** The question and the bounds of a read. */
export interface ContextRequest {
  input?: string | MessageIn | null;
  messages?: MessageIn[] | null;
  token_limit?: number | null;
  initial_token_count?: number;
  wait_for?: number | null;
  insert_method?: "system" | "user";
  block_arguments?: Record<string, unknown> | null;
  generation?: number | null;
  begun_only?: boolean;
  form?: "stored" | "openai";
}

/** A correction of the log; `messages` is how many it took back or replaced. */
export interface CorrectionNote {
  number: number;
  kind: string;
  from_seq: number;
  through_seq: number;
  messages: number;
  actor: string | null;
  at: string;
}

/** A correction: its number in the session, and the messages that it took back or replaced. */
export interface CorrectionOut {
  number: number;
  kind: string;
  from_seq: number;
  through_seq: number;
  seqs: number[];
  created_at: string;
}

/** How far a pipeline is with the session's flushes. */
export interface CoverageOut {
  pipeline: string;
  generation: number | null;
  covered_through: number | null;
  due: number;
  dead: number;
}

/** Why a fact is doubtful: a refused operation on a known fact, with the reason. */
export interface DoubtOut {
  operation: string;
  fact_id: string;
  reason: string;
}

/** The name of the person who asks for it, and items to erase as well. */
export interface ErasureIn {
  actor?: string | null;
  items_below?: string[][];
  even_if_unknown?: boolean;
}

/** An erasure and how it stands; `state` is `running` until there is a receipt. */
export interface ErasureOut {
  number: number;
  erasure_id: string;
  kind: string;
  namespace: string;
  owner_key: string;
  scope_key: string;
  state: string;
  rows_erased: number;
  actor: string | null;
  requested_at: string;
  finished_at: string | null;
  is_signed: boolean;
  counts: Record<string, number>;
  receipt: ReceiptReport | null;
  is_running: boolean;
  failed?: string | null;
}

/** An event of derivation: messages were flushed, a pipeline covers them or gave up, a generation changed. */
export interface EventOut {
  kind: "flushed" | "covered" | "dead" | "generation" | "position" | (string & {});
  at: string;
  session_id?: string | null;
  user_id?: string | null;
  event_id?: string | null;
  from_seq?: number | null;
  through_seq?: number | null;
  cause?: string | null;
  pipeline?: string | null;
  generation?: number | null;
  state?: string | null;
}

/** The facts that workers have made of messages or an instruction so far. */
export interface FactChangesOut {
  source_id: string;
  is_complete: boolean;
  added: FactOut[];
  updated: FactOut[];
  deleted: string[];
  failure?: string | null;
}

/** A fact with its revisions, oldest first. */
export interface FactHistoryOut {
  fact: FactOut;
  revisions: RevisionOut[];
}

/** A fact to add by hand. */
export interface FactIn {
  text: string;
  topics?: string[] | null;
  about_date?: string | null;
  input?: string | null;
  agent_id?: string | null;
  team_id?: string | null;
  as_is?: boolean;
  actor?: string | null;
}

/** A fact; `strandline.Fact` explains the times.  `version` is its ETag. */
export interface FactOut {
  fact_id: string;
  text: string;
  topics: string[];
  said_by: string | null;
  about_date: string | null;
  said_at: string;
  valid_from: string;
  valid_until: string | null;
  invalidated_at: string | null;
  invalidated_by: string | null;
  condensed_into: string | null;
  input: string | null;
  agent_id: string | null;
  team_id: string | null;
  feedback: string | null;
  created_at: string;
  updated_at: string;
  user_id: string | null;
  is_live: boolean;
  is_doubtful: boolean;
  doubt: DoubtOut | null;
  version: string;
}

/** Other words for a fact; topics and day stay unless they are given. */
export interface FactPatch {
  text: string;
  topics?: string[] | null;
  about_date?: string | null;
  actor?: string | null;
}

/** Words or a question, of an owner's live facts. */
export interface FactSearch {
  query: string;
  limit?: number;
  topics?: string[] | null;
  agent_id?: string | null;
  team_id?: string | null;
}

/** Messages that are in no chat, to make facts of; `key` makes it repeatable. */
export interface FactsFrom {
  messages: MessageIn[];
  key?: string | null;
}

/** A page of facts, and how many there are in all; of none, the messages that wait for their delivery. */
export interface FactsOut {
  items: FactOut[];
  next_cursor: string | null;
  total: number;
  waiting?: WaitingOut | null;
}

/** Flush events that were recorded; none if there was nothing to deliver. */
export interface FlushEvents {
  events: string[];
}

/** One flush event. */
export interface FlushOut {
  event_id: string;
  cause: string;
  from_seq: number;
  through_seq: number;
  messages: number;
  tokens: number;
  at: string;
}

/** Deliver all but the last turn, or with `all` everything; `keep`: leave the window as it is. */
export interface FlushRequest {
  all?: boolean;
  keep?: boolean;
}

/** A session that began as a copy of another. */
export interface ForkOut {
  session_id: string;
  through_seq: number;
  messages: number;
}

/** Another session with the messages of this one; `session_id` null: a random one. */
export interface ForkRequest {
  session_id?: string | null;
  through_seq?: number | null;
}

/** A fact that matches. */
export interface FoundFactOut {
  fact: FactOut;
  score: number;
  similarity: number | null;
}

/** The facts that match, best first. */
export interface FoundFacts {
  items: FoundFactOut[];
}

/** A fact that is in the prompt. */
export interface GivenFactOut {
  fact_id: string;
  text: string;
  said_at: string;
  sources: SourceOut[];
  score: number;
  tokens: number;
}

/** A message in the prompt that a search found. */
export interface GivenMessageOut {
  message: MessageOut;
  session_id: string;
  score: number;
  similarity: number;
  tokens: number;
  is_beside: boolean;
}

/** The summary in the prompt. */
export interface GivenSummaryOut {
  text: string;
  through_seq: number;
  is_cut: boolean;
  tokens: number;
}

/** The newest messages that pass all filters. */
export interface HistoryRequest {
  limit?: number;
  offset?: number;
  roles?: ("system" | "developer" | "user" | "assistant" | "tool")[] | null;
  metadata?: Record<string, string | number | boolean | null> | null;
  since?: string | null;
  until?: string | null;
}

/** A message or a fact that matches, best first; `similarity` null where only words were compared. */
export interface HitOut {
  kind: "message" | "fact" | (string & {});
  score: number;
  similarity: number | null;
  text: string;
  session_id?: string | null;
  message?: MessageOut | null;
  fact?: FactOut | null;
}

/** The hits of a search, best first. */
export interface Hits {
  items: HitOut[];
}

/** A dead letter: an event that a pipeline went past. */
export interface HoleOut {
  id: string;
  generation: number;
  from_seq: number;
  through_seq: number;
  at: string;
  reason: string;
}

/** The identity of a request, by its key. */
export interface Identity {
  key_id: string;
  namespace: string | null;
  user_id: string | null;
  scopes: ("read" | "write" | "facts" | "erase" | "operate" | (string & {}))[];
  shared_scopes: string[];
  label: string;
  expires_at: string | null;
}

/** Facts of another system, each added once. */
export interface ImportFactsIn {
  facts: ImportedFactIn[];
}

/** How many facts were added, and how many were there already. */
export interface ImportFactsOut {
  added: number;
  known: number;
}

/** Messages that were said elsewhere, each with an `id` of its own, so that repeating adds nothing. */
export interface ImportIn {
  messages: MessageIn[];
}

/** How many messages were added, how many were there already, and the flush events. */
export interface ImportOut {
  added: number;
  known: number;
  events: number;
}

/** A fact of another system, with its times there. */
export interface ImportedFactIn {
  id: string;
  text: string;
  topics?: string[];
  created_at?: string | null;
  updated_at?: string | null;
  input?: string | null;
  agent_id?: string | null;
  team_id?: string | null;
  feedback?: string | null;
}

/** One chat message in OpenAI's form. */
export interface MessageIn {
  role: "system" | "developer" | "user" | "assistant" | "tool";
  content?: string | Record<string, unknown>[] | null;
  id?: string | null;
  name?: string | null;
  tool_calls?: Record<string, unknown>[] | null;
  tool_call_id?: string | null;
  refusal?: string | null;
  reasoning_content?: string | null;
  annotations?: Record<string, unknown>[] | null;
  audio?: Record<string, unknown> | null;
  metadata?: Record<string, unknown> | null;
  created_at?: string | null;
  extra?: Record<string, unknown> | null;
}

/** A stored message: OpenAI's form, its number in the session (`seq`), its size by the session's tokenizer (`tokens`), and its time. */
export interface MessageOut {
  role: "system" | "developer" | "user" | "assistant" | "tool" | (string & {});
  content: string | Record<string, unknown>[] | null;
  id?: string | null;
  seq?: number | null;
  tokens?: number | null;
  created_at?: string | null;
  name?: string | null;
  tool_calls?: Record<string, unknown>[] | null;
  tool_call_id?: string | null;
  metadata?: Record<string, unknown> | null;
  extra?: Record<string, unknown> | null;
}

/**  */
export interface MessagePage {
  items: MessageOut[];
  next_cursor?: string | null;
}

/** Where a message was stored. */
export interface MessagePlace {
  id: string;
  seq: number;
}

/** The places of the messages of a put, in its order; repeated, a put gives the same. */
export interface MessagesPut {
  messages: MessagePlace[];
}

/** A part that the read left out, or could not do in full, and why. */
export interface OmissionOut {
  kind: string;
  name: string;
  reason: string;
  from_seq?: number | null;
  through_seq?: number | null;
}

/** The rows that an erasure would delete now, by table; `erased_by`: the erasure whose fence stands. */
export interface PlannedErasureOut {
  rows: Record<string, number>;
  erased_by: number | null;
}

/** A change of a session's policy; fields that are left out stay as they are. */
export interface PolicyChangeIn {
  token_limit?: number | null;
  chat_history_token_ratio?: number | null;
  token_flush_size?: number | null;
  idle_seconds?: number | null;
  max_window_messages?: number | null;
  max_window_bytes?: number | null;
  message_flush_size?: number | null;
  deliver?: "window" | "turn" | null;
  time_zone?: string | null;
  blocks?: string[] | null;
  max_facts?: number | null;
  actor?: string | null;
}

/** A change of the policy: only what changed, and who changed it. */
export interface PolicyChangeOut {
  number: number;
  at: string;
  actor: string | null;
  flushed_through: number;
  before: Record<string, unknown>;
  after: Record<string, unknown>;
}

/** Limits and pipelines of a session, stored by the put that begins it; later puts leave them as they are. */
export interface PolicyIn {
  token_limit?: number;
  chat_history_token_ratio?: number;
  token_flush_size?: number;
  idle_seconds?: number | null;
  max_window_messages?: number;
  max_window_bytes?: number;
  message_flush_size?: number | null;
  deliver?: "window" | "turn";
  time_zone?: string | null;
  blocks?: string[] | null;
  max_facts?: number | null;
  shared_scope?: string | null;
}

/** The stored policy of a session. */
export interface PolicyOut {
  token_limit: number;
  flush_at_tokens: number;
  token_flush_size: number;
  idle_seconds: number | null;
  tokenizer: string;
  pipelines: string[];
  max_facts: number | null;
  shared_scope: string | null;
  max_window_messages: number;
  max_window_bytes: number;
  message_flush_size: number | null;
  deliver: string;
  time_zone?: string | null;
}

/** The message that was removed; null: none was left. */
export interface PopOut {
  message: MessageOut | null;
}

/** An error as RFC 9457 has it; `type` names its kind and never changes. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  errors?: ProblemPlace[] | null;
  instance?: string | null;
}

/** A place in the request that cannot be used: a JSON pointer into it, and why, without quoting it. */
export interface ProblemPlace {
  pointer: string;
  detail: string;
}

/** Messages to append, all or none, in this order. */
export interface PutMessages {
  messages: MessageIn[];
  policy?: PolicyIn | null;
  replace_prompt?: boolean;
}

/** The remaining items that one reader gave after the erasure: `remaining` is 0. */
export interface ReaderCheckReport {
  reader: string;
  looked_at: number;
  remaining: number;
}

/** A receipt; `/receipt` and `--receipt` give the bytes that can be verified, for a file outside. */
export interface ReceiptReport {
  version: number;
  kind: string;
  erasure_id: string;
  number: number;
  namespace: string;
  owner_key: string;
  scope_key: string;
  requested_at: string;
  finished_at: string;
  release: string;
  fence: Record<string, string>;
  counts: Record<string, number>;
  kept: Record<string, string>;
  checks: ReaderCheckReport[];
  not_covered: string[];
  key_id: string | null;
  signature: string | null;
}

/** Other content for a message, at the same place. */
export interface ReplaceMessage {
  content: string | Record<string, unknown>[] | null;
  actor?: string | null;
}

/** A session that was reset, with or without its derivations. */
export interface ResetDone {
  session_id: string;
  derived: boolean;
}

/** Begin the history over; with `derived` also forget the memory derived from the session. */
export interface ResetRequest {
  derived?: boolean;
}

/** One change of a fact, and where it comes from. */
export interface RevisionOut {
  operation: string;
  text: string;
  event_id: string | null;
  message_ids: string[];
  seqs: number[];
  model: string | null;
  prompt_hash: string | null;
  fact_event: number | null;
  actor: string | null;
  created_at: string;
}

/** Take back every message from `from_seq` on. */
export interface RewindRequest {
  from_seq: number;
  actor?: string | null;
}

/** Words or a question; `scope` is this session, all of its owner's, or the shared scope. */
export interface SearchRequest {
  query: string;
  limit?: number;
  scope?: "session" | "owner" | "shared";
  exclude_current?: boolean;
  include_window?: boolean;
  kinds?: ("message" | "fact")[];
  begun_only?: boolean;
  roles?: ("system" | "developer" | "user" | "assistant" | "tool")[] | null;
  metadata?: Record<string, string | number | boolean | null> | null;
  since?: string | null;
  until?: string | null;
}

/** One session: how much it holds, and its marks. */
export interface SessionOut {
  session_id: string;
  user_id: string | null;
  messages: number;
  log_start_seq: number;
  pinned_through: number;
  flushed_through: number;
  window_from: number;
  last_seq: number;
  pinned_tokens: number;
  window_tokens: number;
  created_at: string;
  last_put_at: string;
  policy: PolicyOut;
}

/**  */
export interface SessionPage {
  items: SessionOut[];
  next_cursor?: string | null;
}

/** A session in one snapshot, with its newest flushes. */
export interface SessionPictureOut {
  session: SessionOut;
  coverage: CoverageOut[];
  flushes: number;
  latest_flushes: FlushOut[];
  dead_letters: HoleOut[];
  policy_changes: PolicyChangeOut[];
  corrections: CorrectionNote[];
}

/** Messages of one session that something comes from. */
export interface SourceOut {
  session_id: string;
  seqs: number[];
}

/** Messages in windows, of which no memory is derived before the next delivery. */
export interface WaitingOut {
  messages: number;
  sessions: number;
  tokens: number | null;
  flush_at_tokens: number | null;
  deliver_at: string | null;
}

/** What every call takes: a signal that ends it, and how long one attempt may take. */
export interface CallOptions {
  signal?: AbortSignal;
  timeoutMs?: number;
}

/** What a stream takes: a signal that ends it, and the `id` of the last event that was seen. */
export interface StreamOptions {
  signal?: AbortSignal;
  lastEventId?: string;
}

/** Times in milliseconds; `0` as `retryMs` repeats nothing. */
export interface Times {
  /** Of one attempt; what the service is asked to wait comes on top.  Default: 35,000. */
  timeoutMs?: number;
  /** No attempt begins later than this after the first.  Default: 30,000. */
  retryMs?: number;
  /** How long a stream that was cut is asked for again.  Default: 300,000. */
  streamMs?: number;
  /** The first wait is a random time up to this; the range doubles each time.  Default: 100. */
  baseMs?: number;
  /** Up to this, if the service asks for no longer one.  Default: 2,000. */
  longestMs?: number;
}

/** An event, and the `id` behind which a later stream goes on; one may come twice. */
export type ServiceEvent = EventOut & { id: string };

interface Call {
  method: string;
  path: string;
  query?: Record<string, unknown>;
  body?: unknown;
  headers?: Record<string, string | undefined>;
  isSafe: boolean;
  namesUser: boolean;
  options: CallOptions & { waitSeconds?: number };
}

interface Failure {
  error: StrandlineError | NoAnswerError;
  repeat: "always" | "if safe" | "never";
}

/** A refusal of the service; `problem.type` names its kind and never changes. */
export class StrandlineError extends Error {
  readonly problem: Problem;
  readonly retryAfterSeconds: number | null;
  /** An earlier attempt was not answered, or this says so: look whether the change was made. */
  mayBeDone: boolean;

  constructor(problem: Problem, retryAfterSeconds: number | null) {
    super(`${problem.title}: ${problem.detail}`);
    this.name = "StrandlineError";
    this.problem = problem;
    this.retryAfterSeconds = retryAfterSeconds;
    this.mayBeDone = false;
  }
}

/** No answer came, or half of one; `mayBeDone`: look whether the change was made before you repeat it. */
export class NoAnswerError extends Error {
  mayBeDone: boolean;

  constructor(message: string, cause: unknown, mayBeDone: boolean) {
    super(message, { cause });
    this.name = "NoAnswerError";
    this.mayBeDone = mayBeDone;
  }
}

// Kinds of problems that say that nothing was done, and those that do not know it.
const NOT_DONE = new Set(["busy", "redaction-failed", "sealed", "stopping", "too-many-requests", "unavailable"]);
const UNKNOWN = new Set(["outcome-unknown", "timed-out"]);
// What fails before a request is sent, as Node and Bun name it.
const NOT_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT", "ConnectionRefused"]);
// Of other events, which a newer service may tell, the ids count alone.
const KINDS = new Set(["flushed", "covered", "dead", "generation"]);
// A stream says something every 15 seconds; after this long its connection is dead.
const SILENT_MS = 45_000;

/**
 * A service with a key; `user` is for a key that is not one user's, `-` for sessions without a user.
 *
 * What is safe is sent again after a lost answer; what the service refused undone always is, when
 * `Retry-After` says.  Each call that changes something once has an `Idempotency-Key`, the same for all
 * its attempts; give your own as `idempotencyKey` to repeat it from another process.
 */
export class Strandline {
  #url: string;
  #key: string;
  #user: string | undefined;
  #times: Required<Times>;

  constructor(url: string, key: string, user?: string, times: Times = {}) {
    if (user !== undefined && /^[\t ]|[\t ]$/.test(user)) throw new TypeError("A header would drop the spaces around user.");
    this.#url = url.replace(/\/+$/, "");
    this.#key = key;
    this.#user = user;
    this.#times = { timeoutMs: 35_000, retryMs: 30_000, streamMs: 300_000, baseMs: 100, longestMs: 2_000, ...times };
  }

  /** Append messages to a session; it begins with its first put. */
  putMessages(sessionId: string, body: PutMessages, options: CallOptions & { idempotencyKey?: string } = {}): Promise<MessagesPut> {
    return this.#json({ method: "POST", path: `/v1/sessions/${encode(sessionId)}/messages`, body, headers: { "Idempotency-Key": options.idempotencyKey ?? crypto.randomUUID() }, isSafe: true, namesUser: true, options });
  }

  /** The whole log in order, flushed messages included, page by page. */
  listMessages(sessionId: string, query: { limit?: number; cursor?: string | null; after_seq?: number } = {}, options: CallOptions = {}): Promise<MessagePage> {
    return this.#json({ method: "GET", path: `/v1/sessions/${encode(sessionId)}/messages`, query, isSafe: true, namesUser: true, options });
  }

  /** The memory for the next prompt: pinned head, memory, tail and window. */
  readContext(sessionId: string, body: ContextRequest = {}, options: CallOptions & { waitSeconds?: number } = {}): Promise<ContextOut> {
    return this.#json({ method: "POST", path: `/v1/sessions/${encode(sessionId)}/context`, body, isSafe: true, namesUser: true, options });
  }

  /** Search messages, and facts if asked for, best first. */
  search(sessionId: string, body: SearchRequest, options: CallOptions = {}): Promise<Hits> {
    return this.#json({ method: "POST", path: `/v1/sessions/${encode(sessionId)}/search`, body, isSafe: true, namesUser: true, options });
  }

  /** The newest messages that pass all filters, in order; `offset` leaves out so many of the newest. */
  history(sessionId: string, body: HistoryRequest, options: CallOptions = {}): Promise<MessagePage> {
    return this.#json({ method: "POST", path: `/v1/sessions/${encode(sessionId)}/history`, body, isSafe: true, namesUser: true, options });
  }

  /** Remove the newest message and give it back; null if none is left.  Its number is not used again. */
  popMessage(sessionId: string, options: CallOptions & { idempotencyKey?: string } = {}): Promise<PopOut> {
    return this.#json({ method: "DELETE", path: `/v1/sessions/${encode(sessionId)}/messages/last`, headers: { "Idempotency-Key": options.idempotencyKey ?? crypto.randomUUID() }, isSafe: true, namesUser: true, options });
  }

  /** Take back every message from a number on, with all derivations; no copy is kept. */
  rewindSession(sessionId: string, body: RewindRequest, options: CallOptions & { idempotencyKey?: string } = {}): Promise<CorrectionOut> {
    return this.#json({ method: "POST", path: `/v1/sessions/${encode(sessionId)}/rewind`, body, headers: { "Idempotency-Key": options.idempotencyKey ?? crypto.randomUUID() }, isSafe: true, namesUser: true, options });
  }

  /** Give a message other content at the same place; memory of the old content is derived again. */
  replaceContent(sessionId: string, seq: number, body: ReplaceMessage, options: CallOptions & { idempotencyKey?: string } = {}): Promise<CorrectionOut> {
    return this.#json({ method: "PUT", path: `/v1/sessions/${encode(sessionId)}/messages/${encode(seq)}/content`, body, headers: { "Idempotency-Key": options.idempotencyKey ?? crypto.randomUUID() }, isSafe: true, namesUser: true, options });
  }

  /** Deliver to the pipelines now: all but the last turn, or with `all` everything. */
  flushSession(sessionId: string, body: FlushRequest = {}, options: CallOptions & { idempotencyKey?: string } = {}): Promise<FlushEvents> {
    return this.#json({ method: "POST", path: `/v1/sessions/${encode(sessionId)}/flush`, body, headers: { "Idempotency-Key": options.idempotencyKey ?? crypto.randomUUID() }, isSafe: true, namesUser: true, options });
  }

  /** Begin the history over; with `derived`, also forget its derivations. */
  resetSession(sessionId: string, body: ResetRequest = {}, options: CallOptions & { idempotencyKey?: string } = {}): Promise<ResetDone> {
    return this.#json({ method: "POST", path: `/v1/sessions/${encode(sessionId)}/reset`, body, headers: { "Idempotency-Key": options.idempotencyKey ?? crypto.randomUUID() }, isSafe: true, namesUser: true, options });
  }

  /** Begin another session of the same user as a copy of this one; nothing is extracted again. */
  forkSession(sessionId: string, body: ForkRequest = {}, options: CallOptions & { idempotencyKey?: string } = {}): Promise<ForkOut> {
    return this.#json({ method: "POST", path: `/v1/sessions/${encode(sessionId)}/fork`, body, headers: { "Idempotency-Key": options.idempotencyKey ?? crypto.randomUUID() }, isSafe: true, namesUser: true, options });
  }

  /** The sessions by name: of the user, or of the whole namespace if the request names none. */
  getSessions(query: { limit?: number; cursor?: string | null } = {}, options: CallOptions = {}): Promise<SessionPage> {
    return this.#json({ method: "GET", path: `/v1/sessions`, query, isSafe: true, namesUser: true, options });
  }

  /** The state of a session: marks, policy, how far each pipeline is, its newest flushes and corrections. */
  getSession(sessionId: string, options: CallOptions = {}): Promise<SessionPictureOut> {
    return this.#json({ method: "GET", path: `/v1/sessions/${encode(sessionId)}`, isSafe: true, namesUser: true, options });
  }

  /** Delete the messages of a session and all derivations; its name stays with its owner. */
  deleteSession(sessionId: string, options: CallOptions & { idempotencyKey?: string } = {}): Promise<ResetDone> {
    return this.#json({ method: "DELETE", path: `/v1/sessions/${encode(sessionId)}`, headers: { "Idempotency-Key": options.idempotencyKey ?? crypto.randomUUID() }, isSafe: true, namesUser: true, options });
  }

  /** Change limits or pipelines of a session, from its next put and flush on; the change is recorded. */
  changePolicy(sessionId: string, body: PolicyChangeIn, options: CallOptions = {}): Promise<PolicyOut> {
    return this.#json({ method: "PATCH", path: `/v1/sessions/${encode(sessionId)}/policy`, body, isSafe: false, namesUser: true, options });
  }

  /** Take messages over that were said elsewhere, and flush what does not fit the window. */
  importMessages(sessionId: string, body: ImportIn, options: CallOptions = {}): Promise<ImportOut> {
    return this.#json({ method: "POST", path: `/v1/sessions/${encode(sessionId)}/import`, body, isSafe: true, namesUser: true, options });
  }

  /** The events of one session; `Last-Event-ID` resumes. */
  sessionEvents(sessionId: string, options: StreamOptions = {}): AsyncGenerator<ServiceEvent> {
    return this.#events(`/v1/sessions/${encode(sessionId)}/events`, options);
  }

  /** The events of the namespace, of a user, or, with `Strandline-User: -`, of sessions without a user. */
  namespaceEvents(options: StreamOptions = {}): AsyncGenerator<ServiceEvent> {
    return this.#events(`/v1/events`, options);
  }

  /** A page of the live facts, and how many there are. */
  listFacts(user: string, query: { limit?: number; cursor?: string | null; sort?: "newest" | "oldest" | "updated"; contains?: string | null; topic?: string[] | null; agent_id?: string | null; team_id?: string | null; with_invalidated?: boolean; doubtful?: boolean; since?: string | null; until?: string | null } = {}, options: CallOptions = {}): Promise<FactsOut> {
    return this.#json({ method: "GET", path: `/v1/users/${encode(user)}/facts`, query, isSafe: true, namesUser: false, options });
  }

  /** Add a fact by hand; the same statement is one fact, doubtful if it may contradict another. */
  addFact(user: string, body: FactIn, options: CallOptions = {}): Promise<FactOut> {
    return this.#json({ method: "POST", path: `/v1/users/${encode(user)}/facts`, body, isSafe: false, namesUser: false, options });
  }

  /** Give a live fact other words; with `If-Match` only if it is still as that ETag says. */
  replaceFact(user: string, factId: string, body: FactPatch, options: CallOptions & { version?: string } = {}): Promise<FactOut> {
    return this.#json({ method: "PATCH", path: `/v1/users/${encode(user)}/facts/${encode(factId)}`, body, headers: { "If-Match": options.version === undefined ? undefined : `"${options.version}"` }, isSafe: false, namesUser: false, options });
  }

  /** Delete a fact and its history for good; it does not come back from earlier messages. */
  deleteFact(user: string, factId: string, query: { with_messages?: boolean } = {}, options: CallOptions & { version?: string } = {}): Promise<void> {
    return this.#json({ method: "DELETE", path: `/v1/users/${encode(user)}/facts/${encode(factId)}`, query, headers: { "If-Match": options.version === undefined ? undefined : `"${options.version}"` }, isSafe: false, namesUser: false, options });
  }

  /** The live facts that match best, best first; they end with the fact that fills 4 MB. */
  searchFacts(user: string, body: FactSearch, options: CallOptions = {}): Promise<FoundFacts> {
    return this.#json({ method: "POST", path: `/v1/users/${encode(user)}/facts/search`, body, isSafe: true, namesUser: false, options });
  }

  /** One fact, even if it ended; its ETag names it as it is. */
  getFact(user: string, factId: string, options: CallOptions = {}): Promise<FactOut> {
    return this.#json({ method: "GET", path: `/v1/users/${encode(user)}/facts/${encode(factId)}`, isSafe: true, namesUser: false, options });
  }

  /** A fact with its revisions, each with the messages, flush and model, or the person, that made it. */
  factHistory(user: string, factId: string, options: CallOptions = {}): Promise<FactHistoryOut> {
    return this.#json({ method: "GET", path: `/v1/users/${encode(user)}/facts/${encode(factId)}/history`, isSafe: true, namesUser: false, options });
  }

  /** Have facts made of messages that are in no chat; `Prefer: wait=5` waits for the workers so long. */
  factsFromMessages(user: string, body: FactsFrom, options: CallOptions & { idempotencyKey?: string; waitSeconds?: number } = {}): Promise<FactChangesOut> {
    return this.#json({ method: "POST", path: `/v1/users/${encode(user)}/facts/from-messages`, body, headers: { "Idempotency-Key": options.idempotencyKey ?? crypto.randomUUID() }, isSafe: true, namesUser: false, options });
  }

  /** Import facts of another system, each once; a fact that was changed or deleted since stays so. */
  importFacts(user: string, body: ImportFactsIn, options: CallOptions = {}): Promise<ImportFactsOut> {
    return this.#json({ method: "POST", path: `/v1/users/${encode(user)}/facts/import`, body, isSafe: true, namesUser: false, options });
  }

  /** Count the rows that an erasure of the user would delete now, by table; nothing is changed. */
  planUser(user: string, options: CallOptions = {}): Promise<PlannedErasureOut> {
    return this.#json({ method: "GET", path: `/v1/users/${encode(user)}/erasures/plan`, isSafe: true, namesUser: false, options });
  }

  /** Erase a user for good; from the answer on, nothing can be written for them. */
  eraseUser(user: string, body: ErasureIn = {}, options: CallOptions & { idempotencyKey?: string; waitSeconds?: number } = {}): Promise<ErasureOut> {
    return this.#json({ method: "POST", path: `/v1/users/${encode(user)}/erasures`, body, headers: { "Idempotency-Key": options.idempotencyKey ?? crypto.randomUUID() }, isSafe: true, namesUser: false, options });
  }

  /** Erase one session for good, and of its user what only this session gave; as for a user. */
  eraseSession(sessionId: string, body: ErasureIn = {}, options: CallOptions & { idempotencyKey?: string; waitSeconds?: number } = {}): Promise<ErasureOut> {
    return this.#json({ method: "POST", path: `/v1/sessions/${encode(sessionId)}/erasures`, body, headers: { "Idempotency-Key": options.idempotencyKey ?? crypto.randomUUID() }, isSafe: true, namesUser: true, options });
  }

  /** One erasure: how far it is, and its receipt when it is done. */
  getErasure(number: number, options: CallOptions = {}): Promise<ErasureOut> {
    return this.#json({ method: "GET", path: `/v1/erasures/${encode(number)}`, isSafe: true, namesUser: false, options });
  }

  /** The receipt as it is stored: a line for the file that is kept outside; 404 until it is there. */
  getReceipt(number: number, options: CallOptions = {}): Promise<string> {
    return this.#text({ method: "GET", path: `/v1/erasures/${encode(number)}/receipt`, isSafe: true, namesUser: false, options });
  }

  /** Everything that is kept about a user: messages, facts with histories, states, answers, calls. */
  exportUser(user: string, options: CallOptions = {}): AsyncGenerator<Record<string, unknown>> {
    return this.#lines(`/v1/users/${encode(user)}/export`, options);
  }

  /** Everything that is kept about one session, in the same form. */
  exportSession(sessionId: string, options: CallOptions = {}): AsyncGenerator<Record<string, unknown>> {
    return this.#lines(`/v1/sessions/${encode(sessionId)}/export`, options);
  }

  /** Whose the key is, and its rights. */
  whoami(options: CallOptions = {}): Promise<Identity> {
    return this.#json({ method: "GET", path: `/v1/whoami`, isSafe: true, namesUser: true, options });
  }

  #request(call: Call, signal: AbortSignal): Request {
    const headers = new Headers({ Authorization: `Bearer ${this.#key}` });
    for (const [name, value] of Object.entries(call.headers ?? {})) if (value !== undefined) headers.set(name, value);
    if (this.#user !== undefined && call.namesUser) headers.set("Strandline-User", bytes(this.#user));
    if (call.options.waitSeconds !== undefined) headers.set("Prefer", `wait=${Math.ceil(call.options.waitSeconds)}`);
    if (call.body !== undefined) headers.set("Content-Type", "application/json");
    return new Request(this.#url + call.path + encodeQuery(call.query ?? {}), {
      method: call.method,
      headers,
      body: call.body === undefined ? undefined : JSON.stringify(call.body),
      redirect: "manual", // elsewhere the key does not belong
      signal,
    });
  }

  #json<T>(call: Call): Promise<T> {
    return this.#send(call, async (response) => (response.status === 204 ? undefined : await response.json()) as T);
  }

  #text(call: Call): Promise<string> {
    return this.#send(call, (response) => response.text());
  }

  async #send<T>(call: Call, read: (response: Response) => Promise<T>): Promise<T> {
    const { signal, timeoutMs = this.#times.timeoutMs, waitSeconds = 0 } = call.options;
    const began = Date.now();
    let mayBeDone = false;
    for (let attempt = 0; ; attempt++) {
      const limit = new Limit(timeoutMs + waitSeconds * 1000, signal);
      let failure: Failure;
      try {
        const answer = await this.#attempt(call, limit, read);
        if ("value" in answer) return answer.value;
        failure = answer.failure;
      } finally {
        limit.end();
      }
      mayBeDone ||= failure.error.mayBeDone && call.method !== "GET";
      const wait = this.#wait(attempt, failure);
      if (!isRepeated(failure, call.isSafe) || Date.now() - began + wait > this.#times.retryMs) {
        failure.error.mayBeDone = mayBeDone;
        throw failure.error;
      }
      await pause(wait, signal);
    }
  }

  async #attempt<T>(call: Call, limit: Limit, read: (response: Response) => Promise<T>): Promise<{ value: T } | { failure: Failure }> {
    const request = this.#request(call, limit.signal);
    try {
      const response = await fetch(request);
      return response.ok ? { value: await read(response) } : { failure: await refusal(response) };
    } catch (error) {
      call.options.signal?.throwIfAborted();
      if (error instanceof SyntaxError) throw error; // an answer, and not JSON
      return { failure: unanswered(error) };
    }
  }

  #wait(attempt: number, failure: Failure): number {
    const { baseMs, longestMs } = this.#times;
    const after = failure.error instanceof StrandlineError ? (failure.error.retryAfterSeconds ?? 0) : 0;
    return Math.random() * Math.min(longestMs, baseMs * 2 ** attempt) + after * 1000;
  }

  /** The lines of a stream that is not resumed; its last line has to be the trailer. */
  async *#lines(path: string, options: CallOptions): AsyncGenerator<Record<string, unknown>> {
    const limit = new Limit(SILENT_MS, options.signal);
    const namesUser = path.startsWith("/v1/sessions");
    const call = { method: "GET", path, isSafe: true, namesUser, options: { ...options, signal: limit.signal } };
    try {
      const response = await this.#opened(call, limit);
      let last: Record<string, unknown> = {};
      for await (const line of linesOf(response, limit)) {
        if (line === "") continue;
        last = JSON.parse(line);
        yield last;
      }
      if (last.kind !== "trailer") throw new Error("its last line is not the trailer");
    } catch (error) {
      options.signal?.throwIfAborted();
      if (error instanceof StrandlineError || error instanceof NoAnswerError) throw error;
      throw new NoAnswerError("The export broke off; begin it again.", error, false);
    } finally {
      limit.end();
    }
  }

  /** A response whose body is read later, until `limit` ends. */
  async #opened(call: Call, limit: Limit): Promise<Response> {
    const began = Date.now();
    for (let attempt = 0; ; attempt++) {
      limit.extend();
      const answer = await this.#attempt(call, limit, async (response) => response);
      if ("value" in answer) return answer.value;
      const wait = this.#wait(attempt, answer.failure);
      if (!isRepeated(answer.failure, true) || Date.now() - began + wait > this.#times.retryMs) throw answer.failure.error;
      await pause(wait, call.options.signal);
    }
  }

  async *#events(path: string, options: StreamOptions): AsyncGenerator<ServiceEvent> {
    const { signal } = options;
    let lastId = options.lastEventId;
    let attempt = 0;
    let failingSince = Date.now();
    for (;;) {
      const limit = new Limit(SILENT_MS, signal);
      const headers = { Accept: "text/event-stream", "Last-Event-ID": lastId };
      const call = { method: "GET", path, headers, isSafe: true, namesUser: true, options: { signal } };
      const began = Date.now();
      let failure: Failure = unanswered(new Error("the stream ended"));
      try {
        const answer = await this.#attempt(call, limit, async (response) => response);
        if ("failure" in answer) failure = answer.failure;
        else {
          for await (const sent of eventsOf(answer.value, limit)) {
            // Where the service says that the stream is, before anything happens and while nothing does.
            lastId = sent.id ?? lastId;
            if (!KINDS.has(sent.kind)) continue;
            [attempt, failingSince] = [0, Date.now()];
            yield { ...JSON.parse(sent.data), id: lastId ?? "" };
          }
        }
      } catch (error) {
        signal?.throwIfAborted();
        if (error instanceof SyntaxError) throw error;
        failure = unanswered(error);
      } finally {
        limit.end();
      }
      // One that told nothing but held was none of the failures in a row; one that ends at once is.
      if (failure.error instanceof NoAnswerError && Date.now() - began > this.#times.longestMs && limit.wasAlive) {
        [attempt, failingSince] = [0, Date.now()];
      }
      const wait = this.#wait(attempt++, failure);
      if (!isRepeated(failure, true) || Date.now() - failingSince + wait > this.#times.streamMs) throw failure.error;
      await pause(wait, signal);
    }
  }
}

/** Aborts when nothing happens for so long, or the caller does. */
class Limit {
  #controller = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #milliseconds: number;
  #outer: AbortSignal | undefined;
  /** Whether something came. */
  wasAlive = false;

  constructor(milliseconds: number, outer?: AbortSignal) {
    outer?.throwIfAborted();
    this.#milliseconds = milliseconds;
    this.#outer = outer;
    outer?.addEventListener("abort", this.#abort);
    this.extend();
  }

  #abort = () => this.#controller.abort(this.#outer?.reason);

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  extend(): void {
    clearTimeout(this.#timer);
    const late = () => this.#controller.abort(new DOMException("Nothing came in time.", "TimeoutError"));
    this.#timer = setTimeout(late, this.#milliseconds);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#abort);
    this.#controller.abort();
  }
}

/** The lines that came whole. */
async function* linesOf(response: Response, limit: Limit): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  const reader = response.body!.getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    limit.extend();
    limit.wasAlive = true;
    const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = lines.pop()!;
    for (const line of lines) yield line.endsWith("\r") ? line.slice(0, -1) : line;
  }
}

/** The events of a stream; half of one at its end is none. */
async function* eventsOf(response: Response, limit: Limit): AsyncGenerator<{ id?: string; kind: string; data: string }> {
  let id: string | undefined;
  let kind = "";
  let data: string[] = [];
  for await (const line of linesOf(response, limit)) {
    const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line) as RegExpExecArray;
    if (line === "") {
      if (id !== undefined || data.length > 0) yield { id, kind: data.length > 0 ? kind : "", data: data.join("\n") };
      [kind, data] = ["", []];
    } else if (name === "id") id = value;
    else if (name === "event") kind = value;
    else if (name === "data") data.push(value);
  }
}

function isRepeated(failure: Failure, isSafe: boolean): boolean {
  return failure.repeat === "always" || (failure.repeat === "if safe" && isSafe);
}

function unanswered(error: unknown): Failure {
  const cause: any = (error as any)?.cause ?? error;
  const wasSent = !NOT_SENT.has(cause?.code ?? "");
  const why = cause?.message || cause?.code || String(error);
  return {
    error: new NoAnswerError(`The service gave no answer: ${why}`, error, wasSent),
    repeat: wasSent ? "if safe" : "always",
  };
}

async function refusal(response: Response): Promise<Failure> {
  const after = response.headers.get("Retry-After")?.trim() ?? "";
  const isProblem = response.headers.get("Content-Type")?.startsWith("application/problem+json") ?? false;
  const { status } = response;
  const problem: Problem = isProblem
    ? await response.json()
    : { type: "about:blank", title: "Not Strandline's", status, detail: "Look at what stands between." };
  const error = new StrandlineError(problem, /^\d{1,9}$/.test(after) ? Number(after) : null);
  const kind = problem.type.split(":").pop()!;
  if (isProblem && NOT_DONE.has(kind)) return { error, repeat: "always" };
  if (!(isProblem ? UNKNOWN.has(kind) : [502, 503, 504].includes(status))) return { error, repeat: "never" };
  error.mayBeDone = true;
  return { error, repeat: "if safe" };
}

/** A while; ends with the caller's signal. */
function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** A header holds bytes: text in UTF-8, byte by byte. */
function bytes(text: string): string {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

/** A name in a path; `fetch` would leave out these two, and another route would be asked. */
function encode(name: string | number): string {
  if (name === "." || name === "..") throw new TypeError("A name in a path cannot be `.` or `..`.");
  return encodeURIComponent(name);
}

function encodeQuery(query: Record<string, unknown>): string {
  const pairs = Object.entries(query)
    .flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((one) => [name, one]))
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value]) => `${encodeURIComponent(String(name))}=${encodeURIComponent(String(value))}`);
  return pairs.length === 0 ? "" : `?${pairs.join("&")}`;
}
