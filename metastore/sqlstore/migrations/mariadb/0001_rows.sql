-- The one row that the store keeps about itself. Every commit locks it first.
CREATE TABLE IF NOT EXISTS carillon_store (
    one      smallint PRIMARY KEY,
    at       bigint NOT NULL DEFAULT 0, -- of the last commit, Unix nanoseconds
    changes  bigint NOT NULL DEFAULT 0,
    term    bigint NOT NULL DEFAULT 0,
    leader   varbinary(300) NOT NULL DEFAULT '',
    turns    bigint NOT NULL DEFAULT 0, -- given to ready runs
    named    bigint NOT NULL DEFAULT 0, -- the latest time in the names of runs, of this period and before
    named_before bigint NOT NULL DEFAULT 0,
    sequence bigint NOT NULL DEFAULT 0, -- numbers what runs go through, in order
    apply_version integer NOT NULL DEFAULT 0 -- of the rules that is in force, 0 before the first commit
) ENGINE = InnoDB;
INSERT IGNORE INTO carillon_store (one) VALUES (1);

-- Runs, live ones and those that are settled. The body is the whole row; columns are what is looked for. Names are
-- bytes, so that no collation makes two of them one. There are no partial indexes here: a null in the second column
-- keeps what does not belong into an index together at one end of it.
CREATE TABLE IF NOT EXISTS carillon_runs (
    tenant   varbinary(200) NOT NULL,
    id       binary(16)     NOT NULL,
    sequence bigint         NOT NULL, -- in the order of creation
    job      varbinary(200) NOT NULL,
    app      varbinary(200) NOT NULL,
    state    smallint       NOT NULL,
    worker   varbinary(300) NOT NULL,
    parent   binary(16),
    origin   varbinary(40)  NOT NULL,
    cause    varbinary(40)  NOT NULL,
    created  bigint         NOT NULL,
    priority integer        NOT NULL,
    due      bigint         NOT NULL,
    wake     bigint,           -- when it needs the control plane next
    waits    varbinary(400),   -- the gate it waits at
    first    boolean        NOT NULL,
    ready    bigint,           -- its turn, if it is ready
    leased   boolean        NOT NULL,
    settled  bigint,           -- when it was settled, as a sequence
    settled_at bigint,
    live     bigint AS (IF(settled IS NULL, sequence, NULL)) PERSISTENT, -- its sequence while it lives
    body     longblob       NOT NULL,
    PRIMARY KEY (tenant, id),
    INDEX carillon_runs_live        (tenant, live),
    INDEX carillon_runs_live_job    (tenant, job, live),
    INDEX carillon_runs_live_state  (tenant, state, live),
    INDEX carillon_runs_live_worker (tenant, worker, live),
    INDEX carillon_runs_parent      (tenant, parent, sequence),
    INDEX carillon_runs_wake        (wake, sequence),
    INDEX carillon_runs_waits       (tenant, waits),
    INDEX carillon_runs_ready       (tenant, app, ready),
    INDEX carillon_runs_leased      (leased, sequence),
    INDEX carillon_runs_over        (tenant, settled),
    INDEX carillon_runs_over_job    (tenant, job, settled),
    INDEX carillon_runs_over_state  (tenant, state, settled),
    INDEX carillon_runs_over_worker (tenant, worker, settled),
    INDEX carillon_runs_over_at     (settled_at)
) ENGINE = InnoDB;

-- Every other row, by what points to it.
CREATE TABLE IF NOT EXISTS carillon_rows (
    kind   smallint       NOT NULL,
    tenant varbinary(200) NOT NULL,
    name   varbinary(500) NOT NULL,
    id     binary(16)     NOT NULL,
    at     bigint         NOT NULL,
    lapse  bigint, -- when its time is over
    changed bigint, -- of a definition: the number of its last change
    aged   bigint, -- when it became history
    body   longblob       NOT NULL,
    PRIMARY KEY (kind, tenant, name, id, at),
    INDEX carillon_rows_lapse  (kind, lapse),
    INDEX carillon_rows_aged   (aged),
    INDEX carillon_rows_change (changed)
) ENGINE = InnoDB;

-- How many runs entered each state within an hour (span 1) or a day (span 2) that begins at a time, and how long those that succeeded took (ns); of all jobs together under sixteen zeros.
CREATE TABLE IF NOT EXISTS carillon_tallies (
    tenant varbinary(200) NOT NULL,
    job    binary(16)     NOT NULL,
    span   smallint       NOT NULL,
    at     bigint         NOT NULL,
    n_enqueued bigint NOT NULL,
    n_processing bigint NOT NULL,
    n_succeeded bigint NOT NULL,
    n_failed bigint NOT NULL,
    n_terminated bigint NOT NULL,
    n_cancelled bigint NOT NULL,
    n_skipped bigint NOT NULL,
    took bigint NOT NULL,
    PRIMARY KEY (tenant, job, span, at),
    INDEX carillon_tallies_at (span, at)
) ENGINE = InnoDB;

-- How many there are now: runs by state of a job (or of all), ready ones by app, that wait by gate, that have not started by who asked for them.
CREATE TABLE IF NOT EXISTS carillon_counts (
    tenant varbinary(200) NOT NULL,
    what   varbinary(20)  NOT NULL,
    name   varbinary(400) NOT NULL,
    state  smallint       NOT NULL,
    n      bigint         NOT NULL,
    PRIMARY KEY (what, tenant, name, state)
) ENGINE = InnoDB;

-- What handlers wrote.
CREATE TABLE IF NOT EXISTS carillon_logs (
    tenant  varbinary(200) NOT NULL,
    run     binary(16)     NOT NULL,
    attempt bigint         NOT NULL,
    sequence bigint        NOT NULL,
    at      bigint         NOT NULL,
    level   varbinary(40)  NOT NULL,
    line    mediumblob     NOT NULL,
    size    bigint         NOT NULL,
    PRIMARY KEY (tenant, run, attempt, sequence),
    INDEX carillon_logs_at (at)
) ENGINE = InnoDB;

-- Who leads, and until when unless it says so again.
CREATE TABLE IF NOT EXISTS carillon_leader (
    one   smallint PRIMARY KEY,
    node  varbinary(300) NOT NULL DEFAULT '',
    term  bigint NOT NULL DEFAULT 0,
    until bigint NOT NULL DEFAULT 0
) ENGINE = InnoDB;
INSERT IGNORE INTO carillon_leader (one) VALUES (1);

-- Runs that programs asked for inside transactions of their own.
CREATE TABLE IF NOT EXISTS carillon_outbox (
    id       bigint AUTO_INCREMENT PRIMARY KEY,
    envelope longblob NOT NULL,
    refused  text, -- why it cannot be done; null = it is still to be done
    INDEX carillon_outbox_open (refused(1), id)
) ENGINE = InnoDB;
