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
