-- The leader, and the end of its lease unless it is renewed.
CREATE TABLE carillon_leader (
    one     smallint PRIMARY KEY CHECK (one = 1),
    node    text   NOT NULL DEFAULT '',
    term    bigint NOT NULL DEFAULT 0,
    until   bigint NOT NULL DEFAULT 0, -- Unix nanoseconds
    session text   NOT NULL DEFAULT '' -- the server with the session whose lock shows that the leader lives; '' = only the lease shows it
);
INSERT INTO carillon_leader (one) VALUES (1);

-- The log: an entry for each commit. Row 0 is what the first one follows.
CREATE TABLE carillon_log (
    seq   bigint PRIMARY KEY,
    term  bigint NOT NULL, -- in which it was written
    prev  bytea  NOT NULL, -- hash of the row before it
    hash  bytea  NOT NULL,
    entry bytea  NOT NULL
);
ALTER TABLE carillon_log ALTER COLUMN entry SET STORAGE EXTERNAL;
INSERT INTO carillon_log (seq, term, prev, hash, entry) VALUES (0, 0, decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex'), '');

-- All rows of the store at an entry, in parts.
CREATE TABLE carillon_snapshots (
    seq   bigint PRIMARY KEY,
    term  bigint NOT NULL, -- in which it was written
    hash  bytea  NOT NULL, -- of the entry
    parts integer NOT NULL,
    name  text    NOT NULL -- of the attempt that wrote the parts
);
CREATE TABLE carillon_snapshot_parts (
    name text    NOT NULL, -- of the attempt: another one at the same entry has other parts
    seq  bigint  NOT NULL, -- of the entry
    n    integer NOT NULL,
    part bytea   NOT NULL,
    PRIMARY KEY (name, n)
);
ALTER TABLE carillon_snapshot_parts ALTER COLUMN part SET STORAGE EXTERNAL;

-- Up to which number the table of finished runs has those of the log.
CREATE TABLE carillon_mark (
    one  smallint PRIMARY KEY CHECK (one = 1),
    upto bigint NOT NULL DEFAULT 0,
    jobs bigint NOT NULL DEFAULT 0 -- the term whose leader has written carillon_jobs
);
INSERT INTO carillon_mark (one) VALUES (1);

-- Finished runs, for queries of yours, too. There is a partition for each day.
CREATE TABLE carillon_runs (
    number      bigint      NOT NULL, -- in the order in which they ended
    stored_at   timestamptz NOT NULL, -- shortly after that
    tenant      text COLLATE "C" NOT NULL,
    id          uuid        NOT NULL,
    job         text COLLATE "C" NOT NULL,
    app         text COLLATE "C" NOT NULL,
    state       text COLLATE "C" NOT NULL,
    worker      text COLLATE "C" NOT NULL, -- of the last attempt
    parent      uuid,
    priority    integer     NOT NULL,
    attempts    integer     NOT NULL,
    created_at  timestamptz NOT NULL,
    due_at      timestamptz,
    started_at  timestamptz, -- the last attempt
    ended_at    timestamptz,
    code        text NOT NULL, -- of the last failure
    error       text NOT NULL,
    args        text, -- JSON
    result      text, -- JSON
    body        bytea       NOT NULL -- the whole run, for Carillon
) PARTITION BY RANGE (stored_at);
CREATE INDEX carillon_runs_number ON carillon_runs (tenant, number);
CREATE INDEX carillon_runs_id     ON carillon_runs (tenant, id);
CREATE INDEX carillon_runs_job    ON carillon_runs (tenant, job, number);
CREATE INDEX carillon_runs_state  ON carillon_runs (tenant, state, number) WHERE state <> 'Succeeded';
CREATE INDEX carillon_runs_others ON carillon_runs (tenant, job, number) WHERE state <> 'Succeeded';
CREATE INDEX carillon_runs_parent ON carillon_runs (tenant, parent, number) WHERE parent IS NOT NULL;

-- Unfinished runs that are older than 5 seconds, for queries of yours, if store.live is set. The columns are those of
-- carillon_runs.
CREATE TABLE carillon_live (
    tenant      text COLLATE "C" NOT NULL,
    id          uuid        NOT NULL,
    job         text COLLATE "C" NOT NULL,
    app         text COLLATE "C" NOT NULL,
    state       text COLLATE "C" NOT NULL,
    worker      text COLLATE "C" NOT NULL, -- of the last attempt
    parent      uuid,
    priority    integer     NOT NULL,
    attempts    integer     NOT NULL,
    created_at  timestamptz NOT NULL,
    due_at      timestamptz,
    started_at  timestamptz, -- the last attempt
    code        text NOT NULL, -- of the last failure
    error       text NOT NULL,
    args        text, -- JSON
    PRIMARY KEY (tenant, id)
);
CREATE TABLE carillon_live_term (
    one  smallint PRIMARY KEY CHECK (one = 1),
    term bigint NOT NULL DEFAULT 0 -- whose leader has written carillon_live
);
INSERT INTO carillon_live_term (one) VALUES (1);

-- The jobs as they are now, for queries of yours, and for requests in transactions.
CREATE TABLE carillon_jobs (
    tenant     text COLLATE "C" NOT NULL,
    job        text COLLATE "C" NOT NULL,
    app        text COLLATE "C" NOT NULL,
    kind       text    NOT NULL, -- recurring or triggered
    schedule   text    NOT NULL, -- '' = none
    zone       text    NOT NULL,
    paused     boolean NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, job)
);

-- Log lines of handlers.
CREATE TABLE carillon_logs (
    tenant   text COLLATE "C" NOT NULL,
    run      bytea    NOT NULL,
    attempt  bigint   NOT NULL,
    sequence bigint   NOT NULL,
    at       bigint   NOT NULL,
    level    text     NOT NULL,
    line     bytea    NOT NULL,
    size     bigint   NOT NULL, -- against the limit of an attempt
    PRIMARY KEY (tenant, run, attempt, sequence)
);
CREATE INDEX carillon_logs_at ON carillon_logs (at);

-- Requests for runs from transactions of programs.
CREATE TABLE carillon_outbox (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    envelope bytea NOT NULL,
    refused  text, -- the reason
    refused_at bigint -- or when it could not be read, by the database's clock in Unix nanoseconds; null = it is still to be done
);
CREATE INDEX carillon_outbox_open    ON carillon_outbox (id) WHERE refused_at IS NULL;
CREATE INDEX carillon_outbox_refused ON carillon_outbox (id) WHERE refused_at IS NOT NULL;

-- The processes that have the live rows in memory, and so may lead, each until a time.
CREATE TABLE carillon_followers (
    place smallint PRIMARY KEY,
    node  text   NOT NULL DEFAULT '',
    nonce text   NOT NULL DEFAULT '', -- of its start
    until bigint NOT NULL DEFAULT 0
);
INSERT INTO carillon_followers (place) VALUES (1), (2), (3);

-- Members that fire a share of the jobs each, until a time by this database's clock.
CREATE TABLE carillon_members (
    node  text COLLATE "C" PRIMARY KEY,
    nonce text   NOT NULL, -- of its start
    since bigint NOT NULL,
    until bigint NOT NULL,
    fired bigint NOT NULL -- due times
);

-- Where the bus of the leader is.
CREATE TABLE carillon_road (
    one         smallint PRIMARY KEY CHECK (one = 1),
    term        bigint NOT NULL DEFAULT 0,
    node        text   NOT NULL DEFAULT '',
    address     text   NOT NULL DEFAULT '', -- host:port
    certificate bytea -- its SHA-256; null = no TLS
);
INSERT INTO carillon_road (one) VALUES (1);

-- The processes that may connect to it as nodes, each by a token with this SHA-256, until a time.
CREATE TABLE carillon_peers (
    token bytea PRIMARY KEY,
    node  text   NOT NULL,
    until bigint NOT NULL
);

-- What processes ask of the leader that cannot connect to it.
CREATE UNLOGGED TABLE carillon_requests (
    id      bytea PRIMARY KEY,
    until   bigint NOT NULL, -- nothing is done later than this
    service text   NOT NULL,
    caller  text   NOT NULL, -- node that asks
    request bytea  NOT NULL,
    code    text, -- null = no answer yet, '' = it succeeded
    answer  bytea
);
ALTER TABLE carillon_requests ALTER COLUMN request SET STORAGE EXTERNAL, ALTER COLUMN answer SET STORAGE EXTERNAL;
CREATE INDEX carillon_requests_open ON carillon_requests (id) WHERE code IS NULL;
