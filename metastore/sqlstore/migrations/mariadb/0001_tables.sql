-- The leader, and the end of its lease unless it is renewed.
CREATE TABLE IF NOT EXISTS carillon_leader (
    one     smallint PRIMARY KEY,
    node    varbinary(300) NOT NULL DEFAULT '',
    term    bigint NOT NULL DEFAULT 0,
    until   bigint NOT NULL DEFAULT 0, -- Unix nanoseconds
    session varbinary(300) NOT NULL DEFAULT '' -- the server with the session whose lock shows that the leader lives; '' = only the lease shows it
) ENGINE = InnoDB;
INSERT IGNORE INTO carillon_leader (one) VALUES (1);

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
    parts integer    NOT NULL,
    name  varbinary(100) NOT NULL -- of the attempt that wrote the parts
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS carillon_snapshot_parts (
    name varbinary(100) NOT NULL, -- of the attempt: another one at the same entry has other parts
    seq  bigint   NOT NULL, -- of the entry
    n    integer  NOT NULL,
    part longblob NOT NULL,
    PRIMARY KEY (name, n)
) ENGINE = InnoDB;

-- Up to which number the table of finished runs has those of the log.
CREATE TABLE IF NOT EXISTS carillon_mark (
    one  smallint PRIMARY KEY,
    upto bigint NOT NULL DEFAULT 0,
    jobs bigint NOT NULL DEFAULT 0 -- the term whose leader has written carillon_jobs
) ENGINE = InnoDB;
INSERT IGNORE INTO carillon_mark (one) VALUES (1);

-- Finished runs, for queries of yours, too. Times are UTC.
CREATE TABLE IF NOT EXISTS carillon_runs (
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
    KEY carillon_runs_number (tenant, number),
    KEY carillon_runs_id     (tenant, id),
    KEY carillon_runs_job    (tenant, job, number),
    KEY carillon_runs_state  (tenant, state, number),
    KEY carillon_runs_parent (tenant, parent, number)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Unfinished runs that are older than 5 seconds, for queries of yours, if store.live is set. The columns are those of
-- carillon_runs.
CREATE TABLE IF NOT EXISTS carillon_live (
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
    code        text           NOT NULL, -- of the last failure
    error       mediumtext     NOT NULL,
    args        longtext, -- JSON
    PRIMARY KEY (tenant, id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
CREATE TABLE IF NOT EXISTS carillon_live_term (
    one  smallint PRIMARY KEY,
    term bigint NOT NULL DEFAULT 0 -- whose leader has written carillon_live
) ENGINE = InnoDB;
INSERT IGNORE INTO carillon_live_term (one) VALUES (1);

-- The jobs as they are now, for queries of yours, and for requests in transactions.
CREATE TABLE IF NOT EXISTS carillon_jobs (
    tenant     varbinary(200) NOT NULL,
    job        varbinary(200) NOT NULL,
    app        varbinary(200) NOT NULL,
    kind       varbinary(20)  NOT NULL, -- recurring or triggered
    schedule   text           NOT NULL, -- '' = none
    zone       varbinary(100) NOT NULL,
    paused     boolean        NOT NULL,
    created_at datetime(6)    NOT NULL,
    PRIMARY KEY (tenant, job)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Log lines of handlers.
CREATE TABLE IF NOT EXISTS carillon_logs (
    tenant   varbinary(200) NOT NULL,
    run      binary(16)     NOT NULL,
    attempt  bigint         NOT NULL,
    sequence bigint         NOT NULL,
    at       bigint         NOT NULL,
    level    varbinary(40)  NOT NULL,
    line     mediumblob     NOT NULL,
    size     bigint         NOT NULL, -- against the limit of an attempt
    PRIMARY KEY (tenant, run, attempt, sequence),
    INDEX carillon_logs_at (at)
) ENGINE = InnoDB;

-- Requests for runs from transactions of programs.
CREATE TABLE IF NOT EXISTS carillon_outbox (
    id       bigint AUTO_INCREMENT PRIMARY KEY,
    envelope longblob NOT NULL,
    refused  text CHARACTER SET utf8mb4, -- the reason
    refused_at bigint, -- or when it could not be read, by the database's clock in Unix nanoseconds; null = it is still to be done
    INDEX carillon_outbox_open (refused_at, id)
) ENGINE = InnoDB;

-- The processes that have the live rows in memory, and so may lead, each until a time.
CREATE TABLE IF NOT EXISTS carillon_followers (
    place smallint PRIMARY KEY,
    node  varbinary(300) NOT NULL DEFAULT '',
    nonce varbinary(100) NOT NULL DEFAULT '', -- of its start
    until bigint         NOT NULL DEFAULT 0
) ENGINE = InnoDB;
INSERT IGNORE INTO carillon_followers (place) VALUES (1), (2), (3);

-- Members that fire a share of the jobs each, until a time by this database's clock.
CREATE TABLE IF NOT EXISTS carillon_members (
    node  varbinary(300) PRIMARY KEY,
    nonce varbinary(100) NOT NULL, -- of its start
    since bigint NOT NULL,
    until bigint NOT NULL,
    fired bigint NOT NULL -- due times
) ENGINE = InnoDB;

-- Where the bus of the leader is.
CREATE TABLE IF NOT EXISTS carillon_road (
    one         smallint PRIMARY KEY,
    term        bigint         NOT NULL DEFAULT 0,
    node        varbinary(200) NOT NULL DEFAULT '',
    address     varbinary(300) NOT NULL DEFAULT '', -- host:port
    certificate binary(32) -- its SHA-256; null = no TLS
) ENGINE = InnoDB;
INSERT IGNORE INTO carillon_road (one) VALUES (1);

-- The processes that may connect to it as nodes, each by a token with this SHA-256, until a time.
CREATE TABLE IF NOT EXISTS carillon_peers (
    token binary(32) PRIMARY KEY,
    node  varbinary(200) NOT NULL,
    until bigint         NOT NULL
) ENGINE = InnoDB;

-- What processes ask of the leader that cannot connect to it.
CREATE TABLE IF NOT EXISTS carillon_requests (
    id      binary(16) PRIMARY KEY,
    until   bigint         NOT NULL, -- nothing is done later than this
    service varbinary(100) NOT NULL,
    caller  varbinary(200) NOT NULL, -- node that asks
    request longblob       NOT NULL,
    code    varbinary(100), -- null = no answer yet, '' = it succeeded
    answer  longblob,
    KEY carillon_requests_open (code, id)
) ENGINE = InnoDB;
