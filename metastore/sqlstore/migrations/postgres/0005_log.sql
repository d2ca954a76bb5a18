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
    seq   bigint NOT NULL,
    term  bigint NOT NULL, -- in which it was written
    hash  bytea  NOT NULL, -- of the entry
    parts integer NOT NULL,
    PRIMARY KEY (seq)
);
CREATE TABLE carillon_snapshot_parts (
    seq  bigint  NOT NULL,
    term bigint  NOT NULL,
    n    integer NOT NULL,
    part bytea   NOT NULL,
    PRIMARY KEY (seq, term, n)
);
ALTER TABLE carillon_snapshot_parts ALTER COLUMN part SET STORAGE EXTERNAL;

-- Up to which number the history has the finished runs of the log.
CREATE TABLE carillon_mark (
    one  smallint PRIMARY KEY CHECK (one = 1),
    upto bigint NOT NULL DEFAULT 0
);
INSERT INTO carillon_mark (one) VALUES (1);

-- Finished runs, for queries of yours, too. It has a partition for each day.
CREATE TABLE carillon_history (
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
CREATE INDEX carillon_history_number ON carillon_history (tenant, number);
CREATE INDEX carillon_history_id     ON carillon_history (tenant, id);
CREATE INDEX carillon_history_job    ON carillon_history (tenant, job, number);
CREATE INDEX carillon_history_state  ON carillon_history (tenant, state, number) WHERE state <> 'succeeded';
CREATE INDEX carillon_history_parent ON carillon_history (tenant, parent, number) WHERE parent IS NOT NULL;
