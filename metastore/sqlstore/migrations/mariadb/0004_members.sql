-- Who fires a share of the jobs, where several do; each until a time, by this database's clock.
CREATE TABLE IF NOT EXISTS carillon_members (
    node  varbinary(300) PRIMARY KEY,
    nonce varbinary(100) NOT NULL, -- of its start
    since bigint NOT NULL,
    until bigint NOT NULL,
    fired bigint NOT NULL -- due times that it has made runs of
) ENGINE = InnoDB;
