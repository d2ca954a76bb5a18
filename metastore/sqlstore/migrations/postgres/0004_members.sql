-- Who fires a share of the jobs, where several do; each until a time, by this database's clock.
CREATE TABLE carillon_members (
    node  text COLLATE "C" PRIMARY KEY,
    nonce text NOT NULL, -- of its start
    since bigint NOT NULL,
    until bigint NOT NULL,
    fired bigint NOT NULL  -- due times that it has made runs of
);
