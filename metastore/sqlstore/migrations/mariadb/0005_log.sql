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
