// Written by `python -m tools.typescript` from the OpenAPI document of the service; do not edit.
// Needs `fetch` and `crypto.randomUUID`: Node 20 or newer, Deno, Bun, or a worker.

/** The messages for the next model call, and what the memory in them is. */
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
  pinned_through: number;
}

/** What to read for. */
export interface ContextRequest {
  input?: string | MessageIn | null;
  messages?: MessageIn[] | null;
  token_limit?: number | null;
  initial_token_count?: number;
  wait_for?: number | null;
  insert_method?: "system" | "user";
  block_arguments?: Record<string, unknown> | null;
  begun_only?: boolean;
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

/** A fact to add by hand. */
export interface FactIn {
  text: string;
  topics?: string[] | null;
  about_date?: string | null;
  input?: string | null;
  agent_id?: string | null;
  team_id?: string | null;
  actor?: string | null;
}

/** A fact; what the times mean stands at `strandline.Fact`.  `version` is its ETag. */
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

/** A page of facts, and how many there are in all. */
export interface FactsOut {
  items: FactOut[];
  next_cursor: string | null;
  total: number;
}

/** Flush events that were recorded; none if there was nothing to deliver. */
export interface FlushEvents {
  events: string[];
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

/** The newest messages that pass all filters; `limit` null: all of them. */
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
  kind: "message" | "fact";
  score: number;
  similarity: number | null;
  text: string;
  session_id?: string | null;
  message?: MessageOut | null;
  fact?: FactOut | null;
}

/** What a search found, best first. */
export interface Hits {
  items: HitOut[];
}

/** Who a request is, by its key. */
export interface Identity {
  key_id: string;
  namespace: string | null;
  user_id: string | null;
  scopes: ("read" | "write" | "facts" | "erase" | "operate")[];
  shared_scopes: string[];
  label: string;
  expires_at: string | null;
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

/** A stored message: OpenAI's form, with `seq`, `tokens` and its time. */
export interface MessageOut {
  role: "system" | "developer" | "user" | "assistant" | "tool";
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
}

/** Other content for a message, at the same place. */
export interface ReplaceMessage {
  content: string | Record<string, unknown>[] | null;
  actor?: string | null;
}

/** A session that was reset, with or without what was derived from it. */
export interface ResetDone {
  session_id: string;
  derived: boolean;
}

/** Begin the history over; with `derived` also forget the memory derived from the session. */
export interface ResetRequest {
  derived?: boolean;
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

/** Messages of one session that something comes from. */
export interface SourceOut {
  session_id: string;
  seqs: number[];
}

/** A refusal of the service; `problem.type` names its kind and never changes. */
export class StrandlineError extends Error {
  readonly problem: Problem;
  readonly retryAfterSeconds: number | null;

  constructor(problem: Problem, retryAfterSeconds: number | null) {
    super(`${problem.title}: ${problem.detail}`);
    this.name = "StrandlineError";
    this.problem = problem;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** A service with a key; `user` is for a key that is not one user's. */
export class Strandline {
  #url: string;
  #key: string;
  #user: string | undefined;

  constructor(url: string, key: string, user?: string) {
    this.#url = url.replace(/\/+$/, "");
    this.#key = key;
    this.#user = user;
  }

  /** Append messages to a session; it begins with its first put. */
  putMessages(sessionId: string, body: PutMessages, idempotencyKey: string = crypto.randomUUID()): Promise<MessagesPut> {
    return this.#send("POST", `/v1/sessions/${encode(sessionId)}/messages`, {}, body, { "Idempotency-Key": idempotencyKey });
  }

  /** The whole log in order, flushed messages included, page by page. */
  listMessages(sessionId: string, query: { limit?: number; cursor?: string | null } = {}): Promise<MessagePage> {
    return this.#send("GET", `/v1/sessions/${encode(sessionId)}/messages`, query, undefined, {});
  }

  /** The memory for the next prompt: pinned head, memory, what is not derived from yet, and the window. */
  readContext(sessionId: string, body: ContextRequest): Promise<ContextOut> {
    return this.#send("POST", `/v1/sessions/${encode(sessionId)}/context`, {}, body, {});
  }

  /** Search messages, and facts if asked for, best first. */
  search(sessionId: string, body: SearchRequest): Promise<Hits> {
    return this.#send("POST", `/v1/sessions/${encode(sessionId)}/search`, {}, body, {});
  }

  /** The newest messages that pass all filters, in order; `offset` leaves out so many of the newest. */
  history(sessionId: string, body: HistoryRequest): Promise<MessagePage> {
    return this.#send("POST", `/v1/sessions/${encode(sessionId)}/history`, {}, body, {});
  }

  /** Remove the newest message and give it back; null if none is left.  Its number is not used again. */
  popMessage(sessionId: string, idempotencyKey: string = crypto.randomUUID()): Promise<PopOut> {
    return this.#send("DELETE", `/v1/sessions/${encode(sessionId)}/messages/last`, {}, undefined, { "Idempotency-Key": idempotencyKey });
  }

  /** Take back every message from a number on, with what was derived from them; no copy is kept. */
  rewindSession(sessionId: string, body: RewindRequest, idempotencyKey: string = crypto.randomUUID()): Promise<CorrectionOut> {
    return this.#send("POST", `/v1/sessions/${encode(sessionId)}/rewind`, {}, body, { "Idempotency-Key": idempotencyKey });
  }

  /** Give a message other content at the same place; what was derived from the old is derived again. */
  replaceContent(sessionId: string, seq: number, body: ReplaceMessage, idempotencyKey: string = crypto.randomUUID()): Promise<CorrectionOut> {
    return this.#send("PUT", `/v1/sessions/${encode(sessionId)}/messages/${encode(seq)}/content`, {}, body, { "Idempotency-Key": idempotencyKey });
  }

  /** Deliver to the pipelines now: all but the last turn, or with `all` everything. */
  flushSession(sessionId: string, body: FlushRequest, idempotencyKey: string = crypto.randomUUID()): Promise<FlushEvents> {
    return this.#send("POST", `/v1/sessions/${encode(sessionId)}/flush`, {}, body, { "Idempotency-Key": idempotencyKey });
  }

  /** Begin the history over; with `derived`, also forget what was derived from it. */
  resetSession(sessionId: string, body: ResetRequest, idempotencyKey: string = crypto.randomUUID()): Promise<ResetDone> {
    return this.#send("POST", `/v1/sessions/${encode(sessionId)}/reset`, {}, body, { "Idempotency-Key": idempotencyKey });
  }

  /** Begin another session of the same user as a copy of this one; nothing is extracted again. */
  forkSession(sessionId: string, body: ForkRequest, idempotencyKey: string = crypto.randomUUID()): Promise<ForkOut> {
    return this.#send("POST", `/v1/sessions/${encode(sessionId)}/fork`, {}, body, { "Idempotency-Key": idempotencyKey });
  }

  /** The sessions by name: of the user, or of the whole namespace if the request names none. */
  getSessions(query: { limit?: number; cursor?: string | null } = {}): Promise<SessionPage> {
    return this.#send("GET", `/v1/sessions`, query, undefined, {});
  }

  /** A page of the live facts, and how many there are. */
  listFacts(user: string, query: { limit?: number; cursor?: string | null; sort?: "newest" | "oldest" | "updated"; contains?: string | null; topic?: string[] | null; agent_id?: string | null; team_id?: string | null; with_invalidated?: boolean } = {}): Promise<FactsOut> {
    return this.#send("GET", `/v1/users/${encode(user)}/facts`, query, undefined, {});
  }

  /** Add a fact by hand; a live fact in the same words is given instead. */
  addFact(user: string, body: FactIn): Promise<FactOut> {
    return this.#send("POST", `/v1/users/${encode(user)}/facts`, {}, body, {});
  }

  /** Give a live fact other words; with `If-Match` only if it is still as that ETag says. */
  replaceFact(user: string, factId: string, body: FactPatch, version: string | null = null): Promise<FactOut> {
    return this.#send("PATCH", `/v1/users/${encode(user)}/facts/${encode(factId)}`, {}, body, version === null ? {} : { "If-Match": `"${version}"` });
  }

  /** Delete a fact and its history for good; it does not come back from earlier messages. */
  deleteFact(user: string, factId: string, version: string | null = null): Promise<void> {
    return this.#send("DELETE", `/v1/users/${encode(user)}/facts/${encode(factId)}`, {}, undefined, version === null ? {} : { "If-Match": `"${version}"` });
  }

  /** The live facts that match best, best first. */
  searchFacts(user: string, body: FactSearch): Promise<FoundFacts> {
    return this.#send("POST", `/v1/users/${encode(user)}/facts/search`, {}, body, {});
  }

  /** Whose the key is, and what it may do. */
  whoami(): Promise<Identity> {
    return this.#send("GET", `/v1/whoami`, {}, undefined, {});
  }

  async #send<T>(
    method: string,
    path: string,
    query: Record<string, unknown>,
    body: unknown,
    more: Record<string, string>,
  ): Promise<T> {
    const headers: Record<string, string> = { Authorization: `Bearer ${this.#key}`, ...more };
    if (this.#user !== undefined && path.startsWith("/v1/sessions")) {
      // A header holds bytes: text in UTF-8, byte by byte.
      headers["Strandline-User"] = String.fromCharCode(...new TextEncoder().encode(this.#user));
    }
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const response = await fetch(this.#url + path + encodeQuery(query), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      redirect: "error",
    });
    if (!response.ok) throw await refusal(response);
    return (response.status === 204 ? undefined : await response.json()) as T;
  }
}

function encode(name: string | number): string {
  return encodeURIComponent(name);
}

function encodeQuery(query: Record<string, unknown>): string {
  const pairs = Object.entries(query)
    .flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((one) => [name, one]))
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value]) => `${encodeURIComponent(String(name))}=${encodeURIComponent(String(value))}`);
  return pairs.length === 0 ? "" : `?${pairs.join("&")}`;
}

async function refusal(response: Response): Promise<StrandlineError> {
  const after = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  const isProblem = response.headers.get("Content-Type")?.startsWith("application/problem+json");
  const { status } = response;
  const problem: Problem = isProblem
    ? await response.json()
    : { type: "about:blank", title: "Not Strandline's", status, detail: "Look at what stands between." };
  return new StrandlineError(problem, Number.isNaN(after) ? null : after);
}
