// Written by `python -m tools.typescript` from the OpenAPI document of the service; do not edit.
// Needs `fetch`, `crypto.randomUUID` and `AbortSignal.any`: Node 20.3 or newer, Deno, Bun, or a worker.

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

/** The name of the person who asks for it, and items to erase as well. */
export interface ErasureIn {
  actor?: string | null;
  items_below?: string[][];
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
  blocks?: string[] | null;
  max_facts?: number | null;
  actor?: string | null;
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

/** What one reader still gave after the erasure: `remaining` is 0. */
export interface ReaderCheckReport {
  reader: string;
  looked_at: number;
  remaining: number;
}

/** A receipt, as it is stored: written to a file as one line, it can be verified with the public key. */
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

/** How long one attempt and all attempts of a request may take, and what ends them. */
export interface Patience {
  /** Of one attempt, until its answer is whole; what the service is asked to wait comes on top. */
  requestSeconds?: number;
  /** No attempt begins later than this after the first; 0: nothing is sent again. */
  totalSeconds?: number;
  signal?: AbortSignal;
}

/** An event of a stream; `data` is an `EventOut` of the reference. */
export interface StreamEvent {
  id: string | null;
  event: string;
  data: Record<string, unknown>;
}

/** A service with a key; `user` is for a key that is not one user's. */
export class Strandline {
  #url: string;
  #key: string;
  #user: string | undefined;
  #patience: Patience;

  constructor(url: string, key: string, user?: string, patience: Patience = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#key = key;
    this.#user = user;
    this.#patience = patience;
  }

  /** Append messages to a session; it begins with its first put. */
  putMessages(sessionId: string, body: PutMessages, idempotencyKey: string = crypto.randomUUID()): Promise<MessagesPut> {
    return this.#send("POST", `/v1/sessions/${encode(sessionId)}/messages`, {}, body, { "Idempotency-Key": idempotencyKey }, true);
  }

  /** The whole log in order, flushed messages included, page by page. */
  listMessages(sessionId: string, query: { limit?: number; cursor?: string | null } = {}): Promise<MessagePage> {
    return this.#send("GET", `/v1/sessions/${encode(sessionId)}/messages`, query, undefined, {}, true);
  }

  /** The memory for the next prompt: pinned head, memory, what is not derived from yet, and the window. */
  readContext(sessionId: string, body: ContextRequest, waitSeconds: number | null = null): Promise<ContextOut> {
    return this.#send("POST", `/v1/sessions/${encode(sessionId)}/context`, {}, body, { ...(waitSeconds === null ? {} : { Prefer: `wait=${waitSeconds}` }) }, true);
  }

  /** Search messages, and facts if asked for, best first. */
  search(sessionId: string, body: SearchRequest): Promise<Hits> {
    return this.#send("POST", `/v1/sessions/${encode(sessionId)}/search`, {}, body, {}, true);
  }

  /** The newest messages that pass all filters, in order; `offset` leaves out so many of the newest. */
  history(sessionId: string, body: HistoryRequest): Promise<MessagePage> {
    return this.#send("POST", `/v1/sessions/${encode(sessionId)}/history`, {}, body, {}, true);
  }

  /** Remove the newest message and give it back; null if none is left.  Its number is not used again. */
  popMessage(sessionId: string, idempotencyKey: string = crypto.randomUUID()): Promise<PopOut> {
    return this.#send("DELETE", `/v1/sessions/${encode(sessionId)}/messages/last`, {}, undefined, { "Idempotency-Key": idempotencyKey }, true);
  }

  /** Take back every message from a number on, with what was derived from them; no copy is kept. */
  rewindSession(sessionId: string, body: RewindRequest, idempotencyKey: string = crypto.randomUUID()): Promise<CorrectionOut> {
    return this.#send("POST", `/v1/sessions/${encode(sessionId)}/rewind`, {}, body, { "Idempotency-Key": idempotencyKey }, true);
  }

  /** Give a message other content at the same place; what was derived from the old is derived again. */
  replaceContent(sessionId: string, seq: number, body: ReplaceMessage, idempotencyKey: string = crypto.randomUUID()): Promise<CorrectionOut> {
    return this.#send("PUT", `/v1/sessions/${encode(sessionId)}/messages/${encode(seq)}/content`, {}, body, { "Idempotency-Key": idempotencyKey }, true);
  }

  /** Deliver to the pipelines now: all but the last turn, or with `all` everything. */
  flushSession(sessionId: string, body: FlushRequest, idempotencyKey: string = crypto.randomUUID()): Promise<FlushEvents> {
    return this.#send("POST", `/v1/sessions/${encode(sessionId)}/flush`, {}, body, { "Idempotency-Key": idempotencyKey }, true);
  }

  /** Begin the history over; with `derived`, also forget what was derived from it. */
  resetSession(sessionId: string, body: ResetRequest, idempotencyKey: string = crypto.randomUUID()): Promise<ResetDone> {
    return this.#send("POST", `/v1/sessions/${encode(sessionId)}/reset`, {}, body, { "Idempotency-Key": idempotencyKey }, true);
  }

  /** Begin another session of the same user as a copy of this one; nothing is extracted again. */
  forkSession(sessionId: string, body: ForkRequest, idempotencyKey: string = crypto.randomUUID()): Promise<ForkOut> {
    return this.#send("POST", `/v1/sessions/${encode(sessionId)}/fork`, {}, body, { "Idempotency-Key": idempotencyKey }, true);
  }

  /** Change limits or pipelines of a session, from its next put and flush on; the change is recorded. */
  changePolicy(sessionId: string, body: PolicyChangeIn): Promise<PolicyOut> {
    return this.#send("PATCH", `/v1/sessions/${encode(sessionId)}/policy`, {}, body, {}, false);
  }

  /** The sessions by name: of the user, or of the whole namespace if the request names none. */
  getSessions(query: { limit?: number; cursor?: string | null } = {}): Promise<SessionPage> {
    return this.#send("GET", `/v1/sessions`, query, undefined, {}, true);
  }

  /** A page of the live facts, and how many there are. */
  listFacts(user: string, query: { limit?: number; cursor?: string | null; sort?: "newest" | "oldest" | "updated"; contains?: string | null; topic?: string[] | null; agent_id?: string | null; team_id?: string | null; with_invalidated?: boolean } = {}): Promise<FactsOut> {
    return this.#send("GET", `/v1/users/${encode(user)}/facts`, query, undefined, {}, true);
  }

  /** Add a fact by hand; a live fact in the same words is given instead. */
  addFact(user: string, body: FactIn): Promise<FactOut> {
    return this.#send("POST", `/v1/users/${encode(user)}/facts`, {}, body, {}, false);
  }

  /** Give a live fact other words; with `If-Match` only if it is still as that ETag says. */
  replaceFact(user: string, factId: string, body: FactPatch, version: string | null = null): Promise<FactOut> {
    return this.#send("PATCH", `/v1/users/${encode(user)}/facts/${encode(factId)}`, {}, body, { ...(version === null ? {} : { "If-Match": `"${version}"` }) }, false);
  }

  /** Delete a fact and its history for good; it does not come back from earlier messages. */
  deleteFact(user: string, factId: string, version: string | null = null): Promise<void> {
    return this.#send("DELETE", `/v1/users/${encode(user)}/facts/${encode(factId)}`, {}, undefined, { ...(version === null ? {} : { "If-Match": `"${version}"` }) }, false);
  }

  /** The live facts that match best, best first. */
  searchFacts(user: string, body: FactSearch): Promise<FoundFacts> {
    return this.#send("POST", `/v1/users/${encode(user)}/facts/search`, {}, body, {}, true);
  }

  /** Erase a user for good; from the answer on nothing can be written for them any more. */
  eraseUser(user: string, body: ErasureIn, idempotencyKey: string = crypto.randomUUID(), waitSeconds: number | null = null): Promise<ErasureOut> {
    return this.#send("POST", `/v1/users/${encode(user)}/erasures`, {}, body, { "Idempotency-Key": idempotencyKey, ...(waitSeconds === null ? {} : { Prefer: `wait=${waitSeconds}` }) }, true);
  }

  /** One erasure: how far it is, and its receipt when it is done. */
  getErasure(number: number): Promise<ErasureOut> {
    return this.#send("GET", `/v1/erasures/${encode(number)}`, {}, undefined, {}, true);
  }

  /** Whose the key is, and what it may do. */
  whoami(): Promise<Identity> {
    return this.#send("GET", `/v1/whoami`, {}, undefined, {}, true);
  }

  /**
   * A session's events from now on, or behind an id.  A stream that is cut is resumed: an event may come
   * twice, and none is missing.  Leave the loop, or abort the signal, to end it.
   */
  async *events(sessionId: string, lastEventId: string | null = null): AsyncGenerator<StreamEvent> {
    const path = `/v1/sessions/${encode(sessionId)}/events`;
    let last = lastEventId;
    for (let failures = 0; ; ) {
      try {
        const headers = this.#headers(path, last === null ? {} : { "Last-Event-ID": last });
        const { signal } = this.#patience;
        const response = await fetch(this.#url + path, { headers, redirect: "error", signal });
        if (!response.ok || response.body === null) throw await refusal(response);
        for await (const event of eventsIn(response.body)) {
          failures = 0;
          last = event.id ?? last;
          yield event;
        }
        await sleep(Math.random());
      } catch (error) {
        failures += 1;
        const wait = waitSeconds(error, failures, true);
        if (wait === null || this.#patience.signal?.aborted) throw error;
        await sleep(wait);
      }
    }
  }

  #headers(path: string, more: Record<string, string>): Record<string, string> {
    const headers: Record<string, string> = { Authorization: `Bearer ${this.#key}`, ...more };
    if (this.#user !== undefined && path.startsWith("/v1/sessions")) {
      // A header holds bytes: text in UTF-8, byte by byte.
      headers["Strandline-User"] = String.fromCharCode(...new TextEncoder().encode(this.#user));
    }
    return headers;
  }

  /** Sends a request, again if nothing was done, or if it `isSafe` and may have been done. */
  async #send<T>(
    method: string,
    path: string,
    query: Record<string, unknown>,
    body: unknown,
    more: Record<string, string>,
    isSafe: boolean,
  ): Promise<T> {
    const headers = this.#headers(path, more);
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const { requestSeconds = 35, totalSeconds = 30, signal } = this.#patience;
    const asked = Number.parseFloat(more["Prefer"]?.slice("wait=".length) ?? "0");
    const began = Date.now();
    for (let attempt = 1; ; attempt += 1) {
      try {
        const late = AbortSignal.timeout(1000 * (requestSeconds + asked));
        const response = await fetch(this.#url + path + encodeQuery(query), {
          method,
          headers,
          body: body === undefined ? undefined : JSON.stringify(body),
          redirect: "error",
          signal: signal === undefined ? late : AbortSignal.any([late, signal]),
        });
        if (!response.ok) throw await refusal(response);
        return (response.status === 204 ? undefined : await response.json()) as T;
      } catch (error) {
        const wait = waitSeconds(error, attempt, isSafe);
        const spent = (Date.now() - began) / 1000;
        if (wait === null || signal?.aborted || spent + wait > totalSeconds) throw error;
        await sleep(wait);
      }
    }
  }
}

/** A message as OpenAI's chat API takes it, without what it refuses. */
export function toOpenAI(message: MessageOut): Record<string, unknown> {
  const { role, content, name, tool_calls, tool_call_id, extra } = message;
  const fields = Object.entries({ name, tool_calls, tool_call_id, ...extra });
  const there = fields.filter(([, value]) => value !== null && value !== undefined);
  return { role, content, ...Object.fromEntries(there) };
}

/** Before the next attempt: a random part of a time that doubles, and `Retry-After`; null: there is none. */
function waitSeconds(error: unknown, attempt: number, isSafe: boolean): number | null {
  const wait = Math.random() * Math.min(5, 0.1 * 2 ** (attempt - 1));
  if (!(error instanceof StrandlineError)) return isSafe ? wait : null; // no answer, or half of one
  const { status, type } = error.problem;
  if (nothingDone.includes(type)) return wait + (error.retryAfterSeconds ?? 0);
  const isUnknown = unknown.includes(type) || (type === "about:blank" && [502, 503, 504].includes(status));
  return isUnknown && isSafe ? wait : null;
}

const problems = "urn:strandline:problem:";
const nothingDone = ["busy", "stopping", "too-many-requests", "unavailable"].map((kind) => problems + kind);
const unknown = ["outcome-unknown", "timed-out"].map((kind) => problems + kind);

function sleep(seconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
}

async function* eventsIn(body: ReadableStream<Uint8Array>): AsyncGenerator<StreamEvent> {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let rest = ""; ; ) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const lines = block.split("\n");
        const pairs = lines.map((line) => [line.split(":")[0], line.slice(line.indexOf(":") + 2)]);
        const { id = null, event = "message", data } = Object.fromEntries(pairs);
        // A comment keeps the connection open, and has no data.
        if (data !== undefined) yield { id, event, data: JSON.parse(data) };
      }
    }
  } finally {
    await reader.cancel();
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
