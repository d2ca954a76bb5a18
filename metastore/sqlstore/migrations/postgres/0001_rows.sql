-- The one row that the store keeps about itself. Every commit locks it first.
CREATE TABLE carillon_store (
    one      smallint PRIMARY KEY CHECK (one = 1),
    at       bigint NOT NULL DEFAULT 0, -- of the last commit, Unix nanoseconds
    changes  bigint NOT NULL DEFAULT 0,
    term    bigint NOT NULL DEFAULT 0,
    leader   text   NOT NULL DEFAULT '',
    turns    bigint NOT NULL DEFAULT 0, -- given to ready runs
    named    bigint NOT NULL DEFAULT 0, -- the latest time in the names of runs, of this period and before
    named_before bigint NOT NULL DEFAULT 0,
    sequence bigint NOT NULL DEFAULT 0, -- numbers what runs go through, in order
    apply_version integer NOT NULL DEFAULT 0 -- of the rules that is in force, 0 before the first commit
);
INSERT INTO carillon_store (one) VALUES (1);

-- Runs, live ones and those that are settled. The body is the whole row; columns are what is looked for.
CREATE TABLE carillon_runs (
    tenant   text COLLATE "C" NOT NULL,
    id       bytea    NOT NULL,
    sequence bigint   NOT NULL, -- in the order of creation
    job      text COLLATE "C" NOT NULL,
    app      text COLLATE "C" NOT NULL,
    state    smallint NOT NULL,
    worker   text COLLATE "C" NOT NULL,
    parent   bytea,
    origin   text COLLATE "C" NOT NULL,
    cause    text COLLATE "C" NOT NULL,
    created  bigint   NOT NULL,
    priority integer  NOT NULL,
    due      bigint   NOT NULL,
    wake     bigint,           -- when it needs the control plane next
    waits    text COLLATE "C", -- the gate it waits at
    first    boolean  NOT NULL,
    ready    bigint,           -- its turn, if it is ready
    leased   boolean  NOT NULL,
    settled  bigint,           -- when it was settled, as a sequence
    settled_at bigint,
    body     bytea    NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX carillon_runs_live        ON carillon_runs (tenant, sequence)               WHERE settled IS NULL;
CREATE INDEX carillon_runs_live_job    ON carillon_runs (tenant, job, sequence)          WHERE settled IS NULL;
CREATE INDEX carillon_runs_live_state  ON carillon_runs (tenant, state, sequence)        WHERE settled IS NULL;
CREATE INDEX carillon_runs_live_worker ON carillon_runs (tenant, worker, sequence)       WHERE settled IS NULL AND worker <> '';
CREATE INDEX carillon_runs_parent      ON carillon_runs (tenant, parent, sequence)       WHERE parent IS NOT NULL;
CREATE INDEX carillon_runs_wake        ON carillon_runs (wake, sequence)                 WHERE wake IS NOT NULL;
CREATE INDEX carillon_runs_waits       ON carillon_runs (tenant, waits, first DESC, priority DESC, due, id) WHERE waits IS NOT NULL;
CREATE INDEX carillon_runs_ready       ON carillon_runs (tenant, app, priority DESC, ready) WHERE ready IS NOT NULL;
CREATE INDEX carillon_runs_leased      ON carillon_runs (sequence)                       WHERE leased;
CREATE INDEX carillon_runs_over        ON carillon_runs (tenant, settled)                WHERE settled IS NOT NULL;
CREATE INDEX carillon_runs_over_job    ON carillon_runs (tenant, job, settled)           WHERE settled IS NOT NULL;
CREATE INDEX carillon_runs_over_state  ON carillon_runs (tenant, state, settled)         WHERE settled IS NOT NULL AND state <> 4;
CREATE INDEX carillon_runs_over_worker ON carillon_runs (tenant, worker, settled)        WHERE settled IS NOT NULL AND worker <> '';
CREATE INDEX carillon_runs_over_at     ON carillon_runs (settled_at)                     WHERE settled IS NOT NULL;

-- Every other row, by what points to it.
CREATE TABLE carillon_rows (
    kind   smallint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    id     bytea    NOT NULL,
    at     bigint   NOT NULL,
    lapse  bigint, -- when its time is over
    changed bigint, -- of a definition: the number of its last change
    aged   bigint, -- when it became history
    body   bytea    NOT NULL,
    PRIMARY KEY (kind, tenant, name, id, at)
);
CREATE INDEX carillon_rows_lapse  ON carillon_rows (kind, lapse) WHERE lapse IS NOT NULL;
CREATE INDEX carillon_rows_aged   ON carillon_rows (aged)        WHERE aged IS NOT NULL;
CREATE INDEX carillon_rows_change ON carillon_rows (changed)     WHERE changed IS NOT NULL;

-- How many runs entered each state within an hour (span 1) or a day (span 2) that begins at a time, and how long those that succeeded took (ns); of all jobs together under sixteen zeros.
CREATE TABLE carillon_tallies (
    tenant text COLLATE "C" NOT NULL,
    job    bytea    NOT NULL,
    span   smallint NOT NULL,
    at     bigint   NOT NULL,
    n_enqueued bigint NOT NULL,
    n_processing bigint NOT NULL,
    n_succeeded bigint NOT NULL,
    n_failed bigint NOT NULL,
    n_terminated bigint NOT NULL,
    n_cancelled bigint NOT NULL,
    n_skipped bigint NOT NULL,
    took bigint NOT NULL,
    PRIMARY KEY (tenant, job, span, at)
);
CREATE INDEX carillon_tallies_at ON carillon_tallies (span, at);

-- How many there are now: runs by state of a job (or of all), ready ones by app, that wait by gate, that have not started by who asked for them.
CREATE TABLE carillon_counts (
    tenant text COLLATE "C" NOT NULL,
    what   text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    state  smallint NOT NULL,
    n      bigint   NOT NULL,
    PRIMARY KEY (what, tenant, name, state)
);

-- What handlers wrote.
CREATE TABLE carillon_logs (
    tenant  text COLLATE "C" NOT NULL,
    run     bytea    NOT NULL,
    attempt bigint   NOT NULL,
    sequence bigint  NOT NULL,
    at      bigint   NOT NULL,
    level   text     NOT NULL,
    line    bytea    NOT NULL,
    size    bigint   NOT NULL,
    PRIMARY KEY (tenant, run, attempt, sequence)
);
CREATE INDEX carillon_logs_at ON carillon_logs (at);

-- Who leads, and until when unless it says so again.
CREATE TABLE carillon_leader (
    one   smallint PRIMARY KEY CHECK (one = 1),
    node  text   NOT NULL DEFAULT '',
    term  bigint NOT NULL DEFAULT 0,
    until bigint NOT NULL DEFAULT 0
);
INSERT INTO carillon_leader (one) VALUES (1);

-- Runs that programs asked for inside transactions of their own.
CREATE TABLE carillon_outbox (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    envelope bytea NOT NULL,
    refused  text -- why it cannot be done; null = it is still to be done
);
CREATE INDEX carillon_outbox_open ON carillon_outbox (id) WHERE refused IS NULL;
