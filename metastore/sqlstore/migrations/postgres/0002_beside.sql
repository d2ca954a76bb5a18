-- How many commits were made by processes that did not lead: the leader looks when it goes up.
CREATE TABLE carillon_beside (
    one     smallint PRIMARY KEY CHECK (one = 1),
    commits bigint NOT NULL DEFAULT 0
);
INSERT INTO carillon_beside (one) VALUES (1);
