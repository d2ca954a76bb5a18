-- The log: an entry for each commit. Row 0 is what the first one follows.
CREATE TABLE IF NOT EXISTS carillon_log (
    seq   bigint PRIMARY KEY,
    term  bigint     NOT NULL, -- in which it was written
    prev  binary(32) NOT NULL, -- hash of the row before it
    hash  binary(32) NOT NULL,
    entry longblob   NOT NULL
) ENGINE = InnoDB;
INSERT INTO carillon_log (seq, term, prev, hash, entry) SELECT 0, 0, REPEAT('\0', 32), REPEAT('\0', 32), '' FROM (SELECT 1) AS one WHERE NOT EXISTS (SELECT 1 FROM carillon_log);

-- All rows of the store at an entry, in parts.
CREATE TABLE IF NOT EXISTS carillon_snapshots (
    seq   bigint PRIMARY KEY,
    term  bigint     NOT NULL, -- in which it was written
    hash  binary(32) NOT NULL, -- of the entry
    parts integer    NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS carillon_snapshot_parts (
    seq  bigint   NOT NULL,
    term bigint   NOT NULL,
    n    integer  NOT NULL,
    part longblob NOT NULL,
    PRIMARY KEY (seq, term, n)
) ENGINE = InnoDB;

-- Up to which number the history has the finished runs of the log.
CREATE TABLE IF NOT EXISTS carillon_mark (
    one  smallint PRIMARY KEY,
    upto bigint NOT NULL DEFAULT 0
) ENGINE = InnoDB;
INSERT IGNORE INTO carillon_mark (one) VALUES (1);

-- Finished runs, for queries of yours, too. Times are UTC.
CREATE TABLE IF NOT EXISTS carillon_history (
    number      bigint         NOT NULL PRIMARY KEY, -- in the order in which they ended
    stored_at   datetime(6)    NOT NULL, -- shortly after that
    tenant      varbinary(200) NOT NULL,
    id          binary(16)     NOT NULL,
    job         varbinary(200) NOT NULL,
    app         varbinary(200) NOT NULL,
    state       varbinary(40)  NOT NULL,
    worker      varbinary(300) NOT NULL, -- of the last attempt
    parent      binary(16),
    priority    integer        NOT NULL,
    attempts    integer        NOT NULL,
    created_at  datetime(6),
    due_at      datetime(6),
    started_at  datetime(6), -- the last attempt
    ended_at    datetime(6),
    code        text           NOT NULL, -- of the last failure
    error       mediumtext     NOT NULL,
    args        longtext, -- JSON
    result      longtext, -- JSON
    body        longblob       NOT NULL, -- the whole run, for Carillon
    KEY carillon_history_number (tenant, number),
    KEY carillon_history_id     (tenant, id),
    KEY carillon_history_job    (tenant, job, number),
    KEY carillon_history_state  (tenant, state, number),
    KEY carillon_history_parent (tenant, parent, number)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
