-- How many commits were made by processes that did not lead: the leader looks when it goes up.
CREATE TABLE IF NOT EXISTS carillon_beside (
    one     smallint PRIMARY KEY,
    commits bigint NOT NULL DEFAULT 0
) ENGINE = InnoDB;
INSERT IGNORE INTO carillon_beside (one) VALUES (1);
