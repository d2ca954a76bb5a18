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
