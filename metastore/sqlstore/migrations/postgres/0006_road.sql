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
CREATE UNLOGGED TABLE carillon_peers (
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
